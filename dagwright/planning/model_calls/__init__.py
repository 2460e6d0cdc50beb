"""Model calls as nodes of a plan: requests, responses, failures and usage in their wire form."""

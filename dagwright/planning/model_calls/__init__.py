"""Model calls as nodes of a plan: requests, responses, failures and usage in their wire form.

`model_requests` defines the input and the output of the activity `call_model`, and `model_failure` its errors. All plan
extenders use this package.
"""

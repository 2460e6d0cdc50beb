"""Model calls as nodes of a plan: requests, responses, failures and usage in their wire form.

`model_requests` has the input, the output and the errors of the activity `call_model`. All plan extenders use this
package.
"""

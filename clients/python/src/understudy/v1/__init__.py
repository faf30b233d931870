"""The messages of the contract, generated from api/understudy/v1 (make generate)."""

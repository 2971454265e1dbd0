"""The labels party: takes labels in, charges the ledger, emits one signed, privatized message."""

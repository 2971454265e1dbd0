"""The ledger: rules (pure), their store, populations as its scope, audit export."""

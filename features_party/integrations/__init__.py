"""Integrations with data scientists' libraries: scikit-learn, frames, MLflow."""

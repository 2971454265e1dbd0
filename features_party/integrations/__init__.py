"""Libraries that a data scientist has: scikit-learn, frames, MLflow."""

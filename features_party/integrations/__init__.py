"""Integrations with data scientists' libraries: scikit-learn, frames, MLflow. Need the extra `features`."""

from label_dp.installing import require_extra

require_extra("features-party")

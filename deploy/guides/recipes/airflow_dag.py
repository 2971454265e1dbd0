"""Airflow, of an advertiser: each day the rows that came into a table since the last batch become one message.

The service is in an environment of its own, which LABELS_PARTY names; Airflow needs nothing of it. A repeated run finds
no new rows: it is refused, and nothing is charged.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COMMAND = """
"${LABELS_PARTY:-labels-party}" privatize --labels "${SALES:-delta:s3://lake/sales}@last.." --id-column click_id \
--label-column revenue --domain 0:400 --missing-label 0 --population shop --budget 2 --epsilon 0.5 --json \
--out "${MESSAGES:-messages}/{{ ds }}.parquet"
"""

with DAG("daily_message", schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False) as dag:
    BashOperator(task_id="privatize", bash_command=COMMAND, max_active_tis_per_dag=1)

"""`make recipes`: runs each recipe of deploy/guides/recipes in its tool, installed in an environment of its own.

From a Delta table of sales to a message (Airflow), from there to an Iceberg table with labels (Dagster) and to a table
of DuckDB (dbt); from DuckDB, Polars, Daft and Ray by a pipe to a message, and by another to a join. A line for each;
where one does not do its part, what it printed is shown, and the exit code is 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from deploy.packages import DIST, build_all, environment
from tests.distribution.__main__ import say

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "deploy" / "guides" / "recipes"
ROWS = 400
LONGEST = 40  # lines of a recipe
PROFILE = "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb}}}\n"


def run(folder: Path, env: Mapping[str, str], *command: str | Path) -> str:
    """Run a command; what it printed. Ends the process if it fails."""
    environ = dict(os.environ) | dict(env)
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_tables(folder: Path) -> dict[str, str]:
    """Write sales, features and an empty catalog; return the variables of the recipes."""
    clicks = [f"c{i:04d}" for i in range(ROWS)]
    write_deltalake(folder / "sales", pa.table({"click_id": clicks, "revenue": [float(i % 300) for i in range(ROWS)]}))
    write_deltalake(folder / "features", pa.table({"click_id": clicks, "x": list(range(ROWS))}))
    catalog = {"TYPE": "sql", "URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": (folder / "lake").as_uri()}
    (folder / "lake").mkdir()
    SqlCatalog("lake", uri=catalog["URI"], warehouse=catalog["WAREHOUSE"]).create_namespace("shop")
    ours = Path(sys.executable).parent
    return {f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in catalog.items()} | {
        "LABELS_PARTY": str(ours / "labels-party"),
        "FEATURES_PARTY": str(ours / "features-party"),
        "LABELS_PARTY_HOME": str(folder / "labels"),
        "FEATURES_PARTY_HOME": str(folder / "ours"),
        "SALES": f"delta:{folder / 'sales'}",
        "FEATURES": f"delta:{folder / 'features'}",
        "LABELLED": "iceberg:lake/shop.labelled",
        "MESSAGES": str(folder / "messages"),
        "MESSAGE": str(folder / "messages" / "2026-11-02.parquet"),
        "LABELS_KEY": str(folder / "labels" / "keys" / "signing.pub"),
    }


def try_airflow(folder: Path, env: Mapping[str, str]) -> str:
    environment(folder / "airflow", "apache-airflow>=3")
    (folder / "dags").mkdir()
    (folder / "dags" / "daily.py").write_bytes((RECIPES / "airflow_dag.py").read_bytes())
    (folder / "messages").mkdir()
    own = {
        "AIRFLOW_HOME": str(folder / "airflow-home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{folder / 'airflow' / 'bin'}:{os.environ['PATH']}",
    }
    airflow = folder / "airflow" / "bin" / "airflow"
    run(folder, env | own, airflow, "db", "migrate")
    said = run(folder, env | own, airflow, "dags", "test", "daily_message", "2026-11-02")
    assert Path(env["MESSAGE"]).exists(), said
    return f"a DAG made a message of {ROWS} rows"


def try_dagster(folder: Path, env: Mapping[str, str]) -> str:
    environment(folder / "dagster", "dagster>=1.9")
    run(folder, env, env["FEATURES_PARTY"], "pin-key", env["LABELS_KEY"])
    (folder / "dagster-home").mkdir()
    own = {"DAGSTER_HOME": str(folder / "dagster-home"), "MESSAGES": env["MESSAGE"]}
    words = ["asset", "materialize", "-f", RECIPES / "dagster_asset.py", "--select", "labelled"]
    run(folder, dict(env) | own, folder / "dagster" / "bin" / "dagster", *words)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=(folder / "lake").as_uri())
    table = catalog.load_table("shop.labelled")
    assert table.scan().to_arrow().num_rows == ROWS
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return f"an asset wrote {ROWS} rows, ε {snapshot.summary.additional_properties['label_dp.epsilon']} in their commit"


def try_dbt(folder: Path, env: Mapping[str, str]) -> str:
    build_all(folder / "build")
    wheel = next(DIST.glob("*.whl"))
    environment(folder / "dbt", "dbt-duckdb>=1.9", "dbt-core<1.12", f"label-dp-service[features] @ {wheel.as_uri()}")
    project = folder / "project"
    (project / "models").mkdir(parents=True)
    (project / "models" / "labelled.py").write_bytes((RECIPES / "dbt_labelled.py").read_bytes())
    select = f"select 'c' || lpad(i::varchar, 4, '0') as click_id, i as x from range({ROWS + 10}) t(i)"
    (project / "models" / "features.sql").write_text(select)
    (project / "dbt_project.yml").write_text('name: shop\nversion: "1.0"\nprofile: shop\n')
    (project / "profiles.yml").write_text(PROFILE)
    run(project, env, folder / "dbt" / "bin" / "dbt", "run", "--profiles-dir", ".")
    with duckdb.connect(str(project / "shop.duckdb"), read_only=True) as base:
        rows = base.sql("select count(corrected_label) from labelled").fetchall()
    assert rows == [(ROWS,)], rows
    return f"a model has {ROWS} labels"


def try_streams(folder: Path, env: Mapping[str, str]) -> str:
    environment(folder / "engines", "duckdb>=1.4", "polars>=1.20", "daft>=0.7", "ray[data]>=2.50")
    clicks = [f"c{i:04d}" for i in range(ROWS)]
    pq.write_table(pa.table({"click_id": clicks * 2, "revenue": [1.0] * 2 * ROWS}), folder / "sales.parquet")
    pq.write_table(pa.table({"click_id": clicks, "revenue": [0] * ROWS}), folder / "features.parquet")
    python = f"{folder / 'engines' / 'bin' / 'python'} {RECIPES / 'arrow_streams.py'}"
    columns = "--id-column click_id --label-column revenue --domain 0:9 --budget 1 --epsilon 1"
    engines = ("duckdb", "polars", "daft", "ray")
    for engine in engines:
        sales = "features.parquet" if engine == "ray" else "sales.parquet"  # Ray's lines do not sum
        homes = {"LABELS_PARTY_HOME": str(folder / engine), "FEATURES_PARTY_HOME": str(folder / f"{engine}-features")}
        homes |= {"DAFT_ANALYTICS_ENABLED": "0", "DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        command = f"set -o pipefail; {python} {engine} {sales} | {env['LABELS_PARTY']} privatize --labels - {columns}"
        run(folder, homes, "bash", "-c", f"{command} --population {engine} --out {engine}.parquet")
        join = f"{env['FEATURES_PARTY']} join --message {engine}.parquet --labels-key {engine}/keys/signing.pub"
        command = f"set -o pipefail; {python} {engine} features.parquet | {join} --features - --id-column click_id"
        run(folder, homes, "bash", "-c", f"{command} --out - > {engine}.arrows")
        with pa.ipc.open_stream((folder / f"{engine}.arrows").read_bytes()) as reader:
            assert reader.read_all().num_rows == ROWS, engine
    return f"{', '.join(engines)} each sent {ROWS} labels and {ROWS} features by pipes"


def main() -> None:
    for recipe in RECIPES.glob("*.py"):
        length = len(recipe.read_text(encoding="utf-8").splitlines())
        assert length <= LONGEST, f"{recipe.name} has {length} lines"
    with tempfile.TemporaryDirectory(prefix="label-dp-recipes-") as name:
        folder = Path(name)
        env = write_tables(folder)
        for part in (try_streams, try_airflow, try_dagster, try_dbt):
            begin = time.monotonic()
            say(part.__name__.removeprefix("try_"), begin, part(folder, env))


if __name__ == "__main__":
    sys.exit(main())

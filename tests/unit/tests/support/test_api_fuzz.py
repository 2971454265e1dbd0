"""The harness around schemathesis sees what it must: a control whose application has one fault of each kind."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from tests.support.api_fuzz import Known, fuzz

pytestmark = pytest.mark.extended


class Item(BaseModel):
    size: int


def faulty() -> FastAPI:
    app = FastAPI()

    @app.get("/sound")
    def sound() -> Item:
        return Item(size=1)

    @app.get("/broken/{number}")
    def broken(number: int) -> Item:
        if number % 2:
            raise HTTPException(500)
        return Item(size=number)

    @app.get("/crashing")
    def crashing() -> Item:
        raise ZeroDivisionError

    @app.get("/lying", response_model=Item)
    def lying() -> JSONResponse:
        return JSONResponse({"size": "many"})

    @app.get("/undocumented")
    def undocumented() -> JSONResponse:
        return JSONResponse({}, status_code=418)

    return app


def test_faults_of_each_kind_are_found() -> None:
    found = fuzz(faulty(), "none", Known(), examples=20)
    checks = {(operation, check.split(":")[0]) for operation, check in found.failures}
    assert ("GET /broken/{number}", "not_a_server_error") in checks
    assert ("GET /lying", "response_schema_conformance") in checks
    assert ("GET /undocumented", "status_code_conformance") in checks
    assert [error for error in found.errors if error.startswith("GET /crashing")]
    assert "GET /crashing" in found.told
    assert not [check for operation, check in checks if operation == "GET /sound"]
    assert len(found.operations) == 5

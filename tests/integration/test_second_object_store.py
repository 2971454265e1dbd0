"""The tests of stores with OpenStack Swift in the place of moto, and SIGKILL at every named point."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import test_backup_object_store as backups
from tests.integration import test_drafts as drafts
from tests.integration import test_features_object_store as features
from tests.integration import test_ledger_kills as kills
from tests.integration import test_object_store as stores
from tests.integration import test_signed_urls as signed
from tests.integration import test_store_addresses as addresses
from tests.integration import test_store_failures as failures
from tests.support import object_store, swift_store

pytestmark = pytest.mark.processes

nursery, template, signing, pair, sender = kills.nursery, kills.template, signed.signing, features.pair, features.sender
test_kills = kills.test_killed_with_an_object_store
test_one_draw = drafts.test_the_store_sees_one_draw_of_one_charge
test_large_objects = stores.test_a_large_object_comes_back_whole
test_ciphertext = stores.test_what_lies_there_is_encrypted
test_two_replicas = stores.test_two_replicas_share_a_database_and_a_store_and_no_folder
test_two_homes_of_features = features.test_what_one_home_took_in_and_trained_another_serves
test_two_writers = features.test_two_who_keep_the_same_at_once_are_both_served
test_signed_urls = signed.test_a_message_is_pulled_from_the_store_itself_without_the_key
test_absent_bucket = addresses.test_a_bucket_that_is_not_there_is_named_by_its_setting
test_changed_messages = failures.test_a_changed_message_is_not_served_in_part_or_whole
test_backups = backups.test_objects_are_named_and_a_new_home_finds_them
test_later_draws = backups.test_a_store_that_has_a_draw_of_what_the_backup_has_waiting_is_refused


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object_store.Server]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in object_store.CREDENTIALS.items():
            environment.setenv(name, value)
        with swift_store.server(tmp_path_factory.mktemp("swift")) as server:
            yield server

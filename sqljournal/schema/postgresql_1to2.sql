alter table onceguard_journal add column run uuid, add column fingerprint bytea;

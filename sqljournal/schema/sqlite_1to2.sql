alter table onceguard_journal add column run text;
alter table onceguard_journal add column fingerprint blob;

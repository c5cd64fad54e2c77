create table onceguard_journal (
  key        text collate "C" primary key,
  token      uuid not null,
  state      smallint not null, -- 1 begun, 2 done
  note       bytea,
  record     bytea,
  began_at   timestamptz not null default now(),
  until      timestamptz,
  expires_at timestamptz,
  attempts   integer not null default 0, -- how often a sweep has handed the row out, under a token of its own
  run         uuid,  -- the token of the run itself, once a sweep has handed the row out
  fingerprint bytea  -- what the run's request was; only of a row that a sweep has ended
);
alter table onceguard_journal alter column record set storage external;
create index onceguard_journal_until   on onceguard_journal (until)      where state = 1;
create index onceguard_journal_expires on onceguard_journal (expires_at) where state = 2;

-- Times are microseconds since 1970, in UTC.
create table onceguard_journal (
  `key`       varbinary(767) primary key,
  token       binary(36) not null, -- as text
  state       tinyint not null, -- 1 begun, 2 done
  note        blob,
  record      longblob,
  began_at    bigint not null,
  until       bigint,
  expires_at  bigint,
  attempts    integer not null default 0, -- how often a sweep has handed the row out, under a token of its own
  run         binary(36), -- the token of the run itself, once a sweep has handed the row out
  fingerprint blob, -- what the run's request was; only of a row that a sweep has ended
  index onceguard_journal_until (until),
  index onceguard_journal_expires (expires_at)
) engine = InnoDB;

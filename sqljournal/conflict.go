package sqljournal

import (
	"errors"
	"reflect"
)

// errContended means that others have changed the row between two statements. Begin and End then try again. After the
// last try it is their error.
var errContended = errors.New("the row is changed all the time")

// oneOrContended returns the error of a statement after a look has found the one row that it is for.
func oneOrContended(n int64, err error) error {
	if err == nil && n != 1 {
		return errContended
	}
	return err
}

// isConflict reports whether a statement failed only because of concurrent transactions, so that it may be tried again.
// Apart from errContended, this package's own statements fail so only in a database whose default isolation is stricter
// than READ COMMITTED, and in MySQL.
func isConflict(err error) bool {
	number := mysqlNumber(err)
	return errors.Is(err, errContended) || hasState(err, serializationFailure) || hasState(err, deadlockDetected) ||
		number == mysqlDeadlock || number == mysqlRecordChanged
}

// tries is how often a statement is tried, at most, while others change the same row.
const tries = 5

// again calls try until its error is no conflict, or tries are over, and returns the last error.
func again(try func() error) (err error) {
	for range tries {
		if err = try(); !isConflict(err) {
			break
		}
	}
	return err
}

// isDuplicate reports whether an INSERT failed because there is a row with its key.
func isDuplicate(err error) bool {
	return hasState(err, uniqueViolation) || mysqlNumber(err) == mysqlDuplicate
}

// States of PostgreSQL's errors.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	uniqueViolation      = "23505"
)

// hasState reports whether err is an error of PostgreSQL with that state.
func hasState(err error, state string) bool {
	var coded interface{ SQLState() string } // pgx and lib/pq have it
	return errors.As(err, &coded) && coded.SQLState() == state
}

// Numbers of the errors of MySQL and MariaDB.
const (
	mysqlRecordChanged = 1020 // since the transaction's snapshot: MariaDB's innodb_snapshot_isolation
	mysqlDuplicate     = 1062
	mysqlSyntax        = 1064
	mysqlDeadlock      = 1213
	mysqlTwoRows       = 1242 // of a subquery that may have one
	mysqlNoSavepoint   = 1305
)

// mysqlNumber returns the number of an error of MySQL or MariaDB, or 0. It is in the field Number of the driver's type
// MySQLError, which this package does not import, so that other databases do not need that driver.
func mysqlNumber(err error) (number int) {
	switch e := err.(type) {
	case nil:
	case interface{ Unwrap() error }:
		return mysqlNumber(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if number = mysqlNumber(err); number != 0 {
				return number
			}
		}
	default:
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() == reflect.Struct && v.Type().Name() == "MySQLError" {
			if field := v.FieldByName("Number"); field.CanUint() {
				return int(field.Uint())
			}
		}
	}
	return number
}

package main

import (
	"io"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "worker", Run: func(args []string, _ io.Reader, _ io.Writer) error {
		return work(args[0])
	}})
}

// reports matches the script by which a worker reports that a task is done: the first key is the list of active tasks.
func reports(c redistest.Command) bool {
	return (c.Name == "EVALSHA" || c.Name == "EVAL") && len(c.Args) > 2 && string(c.Args[2]) == "asynq:{default}:active"
}

// retries matches the script that has a task tried again later: its fourth key is the list of such tasks. Redis has not seen it
// before, so that its EVALSHA does nothing.
func retries(c redistest.Command) bool {
	return c.Name == "EVAL" && len(c.Args) > 5 && string(c.Args[5]) == "asynq:{default}:retry"
}

// fault: a worker is killed when it has sent the invoice, and before it reports that. asynq gives the task to another
// worker, which does not send it again.
func TestKilledBeforeTheReport(t *testing.T) {
	server := redistest.Start(t)
	client, proxy := server.Client(t), redistest.NewProxy(t, server.Addr())
	report := proxy.HoldRequest(reports)
	first := redistest.Run(t, "worker", proxy.Addr())
	if err := enqueue(server.Addr(), "7"); err != nil {
		t.Fatal(err)
	}
	report.Wait(t)
	first.Kill(t)
	expireLease(t, client)
	again := redistest.NewProxy(t, server.Addr())
	retried, reported := again.HoldReply(retries), again.HoldReply(reports)
	redistest.Run(t, "worker", again.Addr())
	retried.Wait(t)
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: server.Addr()})
	defer inspector.Close()
	// Now, and not in half a minute.
	if err := inspector.RunTask("default", "invoice-7"); err != nil {
		t.Fatal(err)
	}
	retried.Lift()
	reported.Wait(t)
	if sent := client.LRange(t.Context(), "sent", 0, -1).Val(); len(sent) != 1 || sent[0] != "7" {
		t.Errorf("%q was sent, want the invoice once", sent)
	}
}

// expireLease makes asynq believe that the worker has not been heard of for a minute.
func expireLease(t *testing.T, client *redis.Client) {
	t.Helper()
	if err := client.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Member: "invoice-7"}).Err(); err != nil {
		t.Fatal(err)
	}
}

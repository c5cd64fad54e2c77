package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/onceguard/onceguard/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, redistest.Program{Name: "receiver", Run: func(args []string, _ io.Reader, out io.Writer) error {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(out, listener.Addr())
		return serve(listener, args[0], secret)
	}})
}

// send sends a webhook as it is signed at a time, and returns the status and whether the response is a replay.
func send(t *testing.T, addr, id, body string, at time.Time) (string, error) {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := webhook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return post(t, addr, id, body, at, signature)
}

func post(t *testing.T, addr, id, body string, at time.Time, signature string) (string, error) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+addr+"/webhooks", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // the sender repeats, not the Transport
	r.Header.Set(standardwebhooks.HeaderWebhookID, id)
	r.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	r.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	return fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Idempotent-Replayed")), nil
}

func TestWebhooks(t *testing.T) {
	server := redistest.Start(t)
	addr := redistest.Run(t, "receiver", server.Addr()).Line(t)
	now := time.Now()
	for _, c := range []struct {
		id, body string
		at       time.Time
		want     string
	}{
		{"msg_1", "a", now.Add(-time.Hour), "401 "}, // somebody has recorded it
		{"msg_1", "a", now, "204 "},
		{"msg_1", "a", now.Add(time.Minute), "204 true"}, // the sender repeats it
		{"msg_2", "a", now, "204 "},
		{"msg_1", "b", now, "422 "},
		{"msg 1", "a", now, "400 "},
	} {
		if got, err := send(t, addr, c.id, c.body, c.at); got != c.want {
			t.Errorf("%s %s: %q, %v; want %q", c.id, c.body, got, err, c.want)
		}
	}
	if got, err := post(t, addr, "msg_3", "a", now, "v1,bm90IHRoZSBzaWduYXR1cmU="); got != "401 " {
		t.Errorf("a bad signature: %q, %v", got, err)
	}
	wantReceived(t, server, 2)
}

// fault: the receiver is killed when it has handled a webhook, and before it answers. The sender repeats it, and another
// receiver answers without handling it again.
func TestKilledBeforeTheAnswer(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	process := redistest.Run(t, "receiver", proxy.Addr())
	addr, now := process.Line(t), time.Now()
	if got, err := send(t, addr, "msg_0", "a", now); got != "204 " { // and the scripts are loaded
		t.Errorf("%q %v", got, err)
	}
	stored := proxy.HoldReply(redistest.Named("EVALSHA"))
	lost := make(chan error)
	go func() {
		_, err := send(t, addr, "msg_1", "a", now)
		lost <- err
	}()
	stored.Wait(t)
	process.Kill(t)
	if err := <-lost; err == nil {
		t.Error("the killed receiver has answered")
	}
	other := redistest.Run(t, "receiver", server.Addr()).Line(t)
	if got, err := send(t, other, "msg_1", "a", now.Add(time.Minute)); got != "204 true" {
		t.Errorf("%q %v", got, err)
	}
	wantReceived(t, server, 2)
}

func wantReceived(t *testing.T, server *redistest.Server, want int64) {
	t.Helper()
	if n := server.Client(t).LLen(t.Context(), "received").Val(); n != want {
		t.Errorf("%d webhooks were handled, want %d", n, want)
	}
}

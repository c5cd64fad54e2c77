package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceguard/onceguard/internal/background"
	"github.com/onceguard/onceguard/internal/redistest"
	"github.com/onceguard/onceguard/lock/internal/pipeline"
	"github.com/onceguard/onceguard/lock/internal/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The queue has a limit, and what it cannot hold is counted.
func TestReleasesAreBounded(t *testing.T) {
	t.Parallel()
	const limit, more = 1 << 16, 100
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	if err := client.Close(); err != nil { // so that every command fails at once
		t.Fatal(err)
	}
	group := background.NewGroup(context.Background())
	config := store.Config{Namespace: "test", TTL: time.Minute, Config: pipeline.Config{OpTimeout: time.Second}}
	s := store.New(client, group, config)
	for i := range limit + more {
		s.KeepReleasing(store.Unneeded{Key: store.Namespace("test").Key(fmt.Sprint(i)), Token: store.NewToken(), HasHold: true})
	}
	if queued, givenUp := s.ReleaseStats(); queued != limit || givenUp != more {
		t.Errorf("%d in the queue and %d given up, want %d and %d", queued, givenUp, limit, more)
	}
	for i := range limit + more { // without a hold: they do not displace those
		s.KeepReleasing(store.Unneeded{Key: store.Namespace("test").Key(fmt.Sprint(i)), Token: store.NewToken()})
	}
	if queued, givenUp := s.ReleaseStats(); queued != 2*limit || givenUp != 2*more {
		t.Errorf("%d in the queue and %d given up, want %d and %d", queued, givenUp, 2*limit, 2*more)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := group.Close(ctx); err != nil {
		t.Fatal(err)
	}
	err := s.TakeUnreleased()
	if !strings.Contains(fmt.Sprint(err), fmt.Sprintf(": %d: ", limit)) {
		t.Errorf("%.80v, want the claims with a hold alone", err)
	}
	if text := fmt.Sprint(err); !errors.Is(err, store.ErrUnreleased) || strings.Count(text, "test:{") != 100 || !strings.HasSuffix(text, " ...") {
		t.Errorf("%v, want ErrUnreleased, 100 keys, and a sign that there are more", err)
	}
	if queued, givenUp := s.ReleaseStats(); queued != 0 || givenUp != limit+2*more {
		t.Errorf("%d in the queue and %d given up after the last try, want 0 and %d", queued, givenUp, limit+2*more)
	}
	if err := s.TakeUnreleased(); err != nil {
		t.Errorf("again: %v", err)
	}
}

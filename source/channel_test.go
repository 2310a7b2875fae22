package source_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// ring runs a source in the background, and returns the keys that it enqueues and a channel for its error.
func ring(ctx context.Context, keys <-chan kube.Key) (got *[]enqueued, ended <-chan error) {
	got = &[]enqueued{}
	answer := make(chan error, 1)
	go func() { // waited for through ended
		answer <- run(ctx, source.Channel("bell", keys), func(key kube.Key, why controller.Trigger) {
			*got = append(*got, enqueued{key, why.Detail})
		})
	}()
	return got, answer
}

func TestChannelEnqueuesEachKeyUntilItIsClosed(t *testing.T) {
	t.Parallel()
	keys := make(chan kube.Key, 2)
	keys <- kube.Key{Namespace: "default", Name: "a"}
	keys <- kube.Key{Name: "b"}
	got, ended := ring(t.Context(), keys)
	keys <- kube.Key{Namespace: "default", Name: "a"} // a second time: the queue merges keys, the source does not
	close(keys)
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	want := []enqueued{
		{kube.Key{Namespace: "default", Name: "a"}, ""},
		{kube.Key{Name: "b"}, ""},
		{kube.Key{Namespace: "default", Name: "a"}, ""},
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}

func TestChannelEndsWithContext(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]func() chan kube.Key{
		"an open channel": func() chan kube.Key { return make(chan kube.Key) },
		"a nil channel":   func() chan kube.Key { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				got, ended := ring(ctx, keys())
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("Run returned %v before its context ended", err)
				default:
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("Run returned %v; the end of its context is no failure", err)
				}
				if len(*got) > 0 {
					t.Errorf("it enqueued %v", *got)
				}
			})
		})
	}
}

// A source that has stopped receives no more keys: they stay in the channel for the next run.
func TestChannelLeavesKeysAfterEnd(t *testing.T) {
	t.Parallel()
	keys := make(chan kube.Key, 1)
	ctx, cancel := context.WithCancel(t.Context())
	_, ended := ring(ctx, keys)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	keys <- kube.Key{Name: "late"}
	got, second := ring(t.Context(), keys)
	close(keys)
	if err := <-second; err != nil {
		t.Errorf("the next Run returned %v", err)
	}
	if diff := cmp.Diff([]enqueued{{kube.Key{Name: "late"}, ""}}, *got); diff != "" {
		t.Errorf("the next run enqueued (-want +got):\n%s", diff)
	}
}

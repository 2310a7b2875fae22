package informer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
)

// TestOnErrorIsCalledForEachError also checks an informer that calls a function that panics.
func TestOnErrorIsCalledForEachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		broken := errors.New("broken")
		server.Fail("list", broken)
		var seen []error
		f := startWith(t, server, informer.Config[configMap]{OnError: func(err error) {
			if seen = append(seen, err); len(seen) == 2 {
				panic("the function is broken")
			}
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		n := len(seen)
		for _, err := range seen {
			if !errors.Is(err, broken) {
				t.Errorf("%v, want the error of the API server in it", err)
			}
		}
		logs := f.logs.String()
		if lists, _, _ := server.Counts(); n < 3 || n != lists {
			t.Errorf("%d calls for %d lists", n, lists)
		}
		if strings.Count(logs, "the function is broken") != 1 {
			t.Errorf("the log does not show the panic: %s", logs)
		}
		server.Fail("list", nil)
		time.Sleep(time.Minute)
		if err := f.informer.Ready(); err != nil || len(seen) > n+1 {
			t.Errorf("after the recovery: %v, %d more calls", err, len(seen)-n)
		}
	})
}

// TestRunWaitsForOnError: the error of a request without a response is reported while the request waits.
func TestRunWaitsForOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calling, release := false, make(chan struct{})
		inf, err := informer.New(informer.Config[configMap]{
			Name: "test", Retriever: silentRetriever{newServer(false)}, Logger: slog.New(slog.DiscardHandler),
			OnError: func(error) {
				calling = true
				<-release
				calling = false
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- inf.Run(ctx) }() // received below
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); !calling {
			t.Fatal("the request without a response was not reported")
		}
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("Run has returned while OnError is called: %v", err)
			close(release)
		default:
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// silentRetriever returns nothing until the end of the context.
type silentRetriever struct{ *kindserver.Server[configMap] }

func (silentRetriever) List(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSlowOnErrorIsNotReportedAsSlowResponse: the time of a call of OnError is not a time without a response.
func TestSlowOnErrorIsNotReportedAsSlowResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(false)
		broken := errors.New("broken")
		server.Fail("list", broken)
		f := startWith(t, server, informer.Config[configMap]{OnError: func(err error) {
			if !errors.Is(err, broken) {
				t.Errorf("the error is %v", err)
			}
			time.Sleep(3 * time.Minute)
		}})
		time.Sleep(10 * time.Minute)
		f.stop()
	})
}

// TestOnErrorCallsNeverOverlap: a request fails while the function is called because the request had no response
// for a long time.
func TestOnErrorCallsNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, calling atomic.Int32
		f := startWith(t, newServer(false), informer.Config[configMap]{
			Retriever: lateRetriever{newServer(false)},
			OnError: func(error) {
				calls.Add(1)
				if n := calling.Add(1); n != 1 {
					t.Errorf("%d calls at a time", n)
				}
				time.Sleep(time.Minute)
				calling.Add(-1)
			},
		})
		time.Sleep(5 * time.Minute)
		f.stop()
		if n := calls.Load(); n < 2 {
			t.Errorf("%d calls, want one for the late response and one for its error", n)
		}
	})
}

// lateRetriever returns an error after a long time.
type lateRetriever struct{ *kindserver.Server[configMap] }

func (lateRetriever) List(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Second):
	}
	return nil, errors.New("late")
}

package informer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
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
		defer f.stop()
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

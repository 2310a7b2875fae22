package informer_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
)

// A subscriber that does not return makes the informer unhealthy, since the time when it was called.
func TestHealthReportsSubscriberThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := startWith(t, server, informer.Config[configMap]{})
		synctest.Wait()
		time.Sleep(time.Second)
		returned := make(chan struct{})
		f.informer.Subscribe(func(informer.Change) { <-returned })
		began := time.Now()
		server.Put(object("a", "1"))
		time.Sleep(50 * time.Second)
		if h := f.informer.Health(); h.Err != nil || !h.ErrSince.IsZero() {
			t.Errorf("after 50 s the error is %v, since %s", h.Err, h.ErrSince)
		}
		time.Sleep(50 * time.Second)
		h := f.informer.Health()
		if h.Err == nil || !strings.Contains(h.Err.Error(), "has not returned for 1m40s") || !h.ErrSince.Equal(began) {
			t.Errorf("after 100 s the error is %v, since %s; want since %s", h.Err, h.ErrSince, began)
		}
		close(returned)
		synctest.Wait()
		if h := f.informer.Health(); h.Err != nil || !h.ErrSince.IsZero() {
			t.Errorf("when it has returned, the error is %v, since %s", h.Err, h.ErrSince)
		}
	})
}

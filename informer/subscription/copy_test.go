package subscription_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/informer/subscription"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// keepCopy changes a server, its watches and a receiver in random order, and compares the receiver's copy with the
// server's objects at the end.
func keepCopy(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	server, s := newSubscribed(t)
	out := s.Events()
	testrun.Start(t, s.Run)
	truth, held := map[string]string{}, map[string]configMap{}
	version, synced := 0, 0
	receive := func() (more bool) {
		select {
		case e := <-out:
			if e.Synced {
				synced++
				return true
			}
			apply(t, held, e)
			return true
		default:
			return false
		}
	}
	for range 500 {
		name := string(rune('a' + random.IntN(5)))
		switch what := random.IntN(20); {
		case what < 8:
			version++
			truth[name] = strconv.Itoa(version)
			server.Put(object(name, truth[name]))
		case what < 14:
			if truth[name] != "" {
				delete(truth, name)
				server.Delete(key(name))
			}
		case what < 17:
			receive()
		case what == 17:
			server.DropWatches()
		case what == 18:
			server.Compact()
		default:
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for receive() {
		synctest.Wait()
	}
	copied := map[string]string{}
	for name, obj := range held {
		copied[name] = obj.Data["value"]
	}
	if diff := cmp.Diff(truth, copied); diff != "" {
		t.Errorf("copy (-server +copy):\n%s", diff)
	}
	if synced != 1 {
		t.Errorf("received %d Synced events", synced)
	}
}

// apply applies an event to a copy, and fails the test if the event does not fit.
func apply(t *testing.T, held map[string]configMap, e subscription.Event[configMap]) {
	t.Helper()
	known, found := held[e.Key.Name]
	switch {
	case !e.Deleted && found && known.UID != e.Object.UID:
		t.Errorf("%s arrived before the Deleted of the earlier object %s", words(e), known.UID)
	case !e.Deleted && found && known.ResourceVersion == e.Object.ResourceVersion:
		t.Errorf("%s arrived twice", words(e))
	case e.Deleted && (!found || known.UID != e.Object.UID):
		t.Errorf("%s arrived for an unknown object", words(e))
	}
	if !e.Deleted {
		held[e.Key.Name] = e.Object
		return
	}
	delete(held, e.Key.Name)
}

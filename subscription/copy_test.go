package subscription_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/subscription"
)

// keepCopy lets a server, its watches and a receiver do anything in any order, and compares the
// receiver's copy with the truth at the end.
func keepCopy(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	server := newServer()
	s := newSubscription(t, subscription.Config[configMap]{Retriever: server})
	out := s.Events()
	defer run(t, s)()
	truth, held := map[string]string{}, map[string]configMap{}
	version, synced := 0, 0
	receive := func() (more bool) {
		select {
		case e := <-out:
			if e.Type == subscription.Synced {
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
		t.Errorf("the copy (-truth +copy):\n%s", diff)
	}
	if synced != 1 {
		t.Errorf("told %d times that everything was told", synced)
	}
}

// apply does to a copy what an event says, and fails the test where that makes no sense.
func apply(t *testing.T, held map[string]configMap, e subscription.Event[configMap]) {
	t.Helper()
	known, found := held[e.Key.Name]
	switch {
	case e.Type == subscription.Applied && found && known.UID != e.Object.UID:
		t.Errorf("%s came before the end of the earlier one, %s", words(e), known.UID)
	case e.Type == subscription.Applied && found && known.ResourceVersion == e.Object.ResourceVersion:
		t.Errorf("%s came twice", words(e))
	case e.Type == subscription.Deleted && (!found || known.UID != e.Object.UID):
		t.Errorf("%s, and that was not there", words(e))
	}
	if e.Type == subscription.Applied {
		held[e.Key.Name] = e.Object
		return
	}
	delete(held, e.Key.Name)
}

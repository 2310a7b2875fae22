package poll_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestHTTPSplitsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		web := &site{}
		splits := 0
		var broken atomic.Bool
		broken.Store(true)
		web.says(200, "x1 y1 z1", `ETag: "1"`)
		s, q, stop := runHTTP(t, web, poll.HTTPConfig{Split: func(body []byte) (items []poll.Item, err error) {
			splits++
			for word := range strings.FieldsSeq(string(body)) {
				items = append(items, item(word[:1], word[1:]))
				if word[:1] == "y" {
					items[len(items)-1].Keys = []kube.Key{key("b")}
				}
			}
			clear(body) // Split may modify the body
			if broken.Load() {
				return items, errors.New("broken")
			}
			return items, nil
		}})
		defer stop()
		ready(t, s, "GET "+shownURL+": split the body into items: broken")
		q.expect(t)
		broken.Store(false)
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: listed x (low)", "ns/a: listed z (low)", "ns/b: listed y (low)")
		if web.conditions() != "" {
			t.Error("a body that could not be split is asked for on condition")
		}
		time.Sleep(time.Minute) // the server ignores the conditional headers
		q.expect(t)
		if splits != 2 {
			t.Errorf("an unchanged body is split again: %d times", splits)
		}
		web.says(200, "x2 y1 w1")
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: added w", "ns/a: deleted z", "ns/a: updated x")
		web.says(404, "")
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: deleted w", "ns/a: deleted x", "ns/b: deleted y")
	})
}

// If the items of a body could not be announced, the body must be fetched again, although it does not change.
func TestHTTPFetchesUnannouncedBodyAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		web := &site{answer: func(request *http.Request) reply {
			if request.Header.Get("If-None-Match") != "" {
				return reply{status: 304}
			}
			return reply{status: 200, body: "red", headers: []string{`ETag: "1"`}}
		}}
		var broken atomic.Bool
		broken.Store(true)
		poller := poll.HTTP(poll.HTTPConfig{URL: shownURL, Client: &http.Client{Transport: web}})
		_, q, stop := runPoll(t, poll.Config{Poller: poller, KeysOf: func(poll.Item) []kube.Key {
			if broken.Load() {
				panic("not yet")
			}
			return []kube.Key{key("a")}
		}})
		defer stop()
		q.expect(t)
		broken.Store(false)
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: listed "+shownURL+" (low)")
	})
}

// A body that changes and changes back is two changes.
func TestHTTPAnnouncesRevertedBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		web := &site{}
		split := func(body []byte) (items []poll.Item, err error) {
			for i, version := range strings.Fields(string(body)) {
				items = append(items, item([]string{"x", "y"}[i], version, key([]string{"a", "b"}[i])))
			}
			return items, nil
		}
		var broken atomic.Bool
		poller := poll.HTTP(poll.HTTPConfig{URL: shownURL, Split: split, Client: &http.Client{Transport: web}})
		web.says(200, "1 1")
		_, q, stop := runPoll(t, poll.Config{Poller: poller, KeysOf: func(item poll.Item) []kube.Key {
			if item.ID == "y" && broken.Load() {
				panic("on y")
			}
			return nil
		}})
		defer stop()
		q.expect(t, "ns/a: listed x (low)", "ns/b: listed y (low)")
		broken.Store(true)
		web.says(200, "2 2")
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated x")
		web.says(200, "1 1")
		time.Sleep(time.Minute)
		q.expect(t, "ns/a: updated x")
	})
}

package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The bookmark after the initial objects has their version, although other clients write and compact meanwhile.
func TestInitialBookmarkHasVersionOfInitialObjects(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 20)
	var clients sync.WaitGroup
	clients.Go(func() {
		for i := range 200 {
			mustSend(t, s, "POST", configMapsPath, fmt.Sprintf(`{"metadata":{"name":"new-%d"}}`, i))
			s.Compact()
		}
	})
	for range 30 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://apiserver.invalid"+configMapsPath+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Transport().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		objects, decoder := 0, json.NewDecoder(res.Body)
		for bookmarked := false; !bookmarked; {
			var event struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			if err := decoder.Decode(&event); err != nil {
				t.Fatal(err)
			}
			if objects++; event.Type != "BOOKMARK" {
				continue
			}
			bookmarked = true
			// The first object was created by the write with version 1001, so each later one by the version of its number.
			if want := fmt.Sprint(firstVersion + objects - 1); event.Object.ResourceVersion != want {
				t.Fatalf("%d objects, and a bookmark at %s", objects-1, event.Object.ResourceVersion)
			}
		}
		res.Body.Close()
	}
	clients.Wait()
}

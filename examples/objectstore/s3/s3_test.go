package s3_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/examples/objectstore/s3"
	"github.com/evenkeel-go/evenkeel/examples/objectstore/s3/s3test"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bucketAt(address string) s3.Bucket {
	return s3.Bucket{
		URL: address, Prefix: "configs/", Client: http.DefaultClient,
		KeysOf: func(name string) []kube.Key { return []kube.Key{{Name: name}} },
	}
}

// TestBucketListsAllPages: also names that URLs and XML must escape.
func TestBucketListsAllPages(t *testing.T) {
	store := s3test.New(t, "settings", 2)
	want := []string{"configs/a b", "configs/a+b", "configs/a//b", "configs/a?b#c%41", "configs/é\u0001<&>", "configs/z"}
	for _, name := range want {
		store.Put(name, "content of "+name)
	}
	store.Put("other", "")
	b := bucketAt(store.URL())
	result, err := poll.FromObjectStore(b).Poll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, item := range result.Items {
		found[item.ID] = string(item.Content)
		if !strings.HasPrefix(item.Version, `"`) || !cmp.Equal(item.Keys, []kube.Key{{Name: item.ID}}) {
			t.Errorf("the item is %+v", item)
		}
	}
	expected := map[string]string{}
	for _, name := range want {
		expected[name] = "content of " + name
	}
	if diff := cmp.Diff(expected, found); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	second, err := poll.FromObjectStore(b).Poll(t.Context(), result.Token)
	if err != nil || !second.Unchanged {
		t.Errorf("the second poll: %+v, %v", second, err)
	}
}

func TestBucketObjectIsRemovedAfterList(t *testing.T) {
	store := s3test.New(t, "settings", 100)
	store.Put("configs/a", "1")
	store.Put("configs/b", "1")
	store.Between = func() { store.Remove("configs/a") }
	result, err := poll.FromObjectStore(bucketAt(store.URL())).Poll(t.Context(), nil)
	if err != nil || len(result.Items) != 1 || result.Items[0].ID != "configs/b" {
		t.Errorf("the result is %+v, %v", result, err)
	}
}

// TestBucketErrors: a failed list is never an empty one, and errors do not contain the query.
func TestBucketErrors(t *testing.T) {
	store := s3test.New(t, "settings", 100)
	_, err := bucketAt(store.URL() + "-gone").List(t.Context())
	if failed, ok := errors.AsType[*s3.Error](err); !ok || failed.Code != "NoSuchBucket" {
		t.Errorf("a missing bucket: %v", err)
	}
	if _, found, err := bucketAt(store.URL()+"-gone").Read(t.Context(), poll.Item{ID: "a"}); err == nil || found {
		t.Errorf("an object of a missing bucket: %t, %v", found, err)
	}
	for body, want := range map[string]string{
		"<html>": "decode the list",
		"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>":                                   "no token for the next page",
		"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%</Key></Contents></ListBucketResult>": "decode the name",
		"<ListBucketResult>" + strings.Repeat(" ", 8<<20) + "</ListBucketResult>":                                "larger than",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if items, err := bucketAt(server.URL).List(t.Context()); err == nil || !strings.Contains(err.Error(), want) || items != nil {
			t.Errorf("want %q: %v, %v", want, items, err)
		}
		http.DefaultClient.CloseIdleConnections()
		server.Close()
		if _, err := bucketAt(server.URL).List(t.Context()); err == nil || strings.Contains(err.Error(), "list-type") {
			t.Errorf("a stopped server: %v", err)
		}
	}
}

// Package s3test is a server on the loopback interface that lists and serves objects as S3 does, for tests.
package s3test

import (
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server has one bucket.
type Server struct {
	// Between is called after each page of a list. Optional.
	Between func()

	server   *httptest.Server
	bucket   string
	pageSize int

	mu      sync.Mutex
	objects map[string]string // contents by name; guarded by mu
}

// New starts a server with an empty bucket. Its lists have at most pageSize objects a page.
func New(tb testing.TB, bucket string, pageSize int) *Server {
	tb.Helper()
	s := &Server{bucket: bucket, pageSize: pageSize, objects: map[string]string{}}
	s.server = httptest.NewServer(s)
	tb.Cleanup(func() {
		s.server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// URL returns the address of the bucket.
func (s *Server) URL() string { return s.server.URL + "/" + s.bucket }

// Put creates or replaces an object.
func (s *Server) Put(name, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = content
}

// Remove removes an object.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, name, isObject := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case bucket != s.bucket:
		fail(w, "NoSuchBucket")
	case isObject:
		s.read(w, name)
	default:
		s.list(w, r.URL.Query())
		if s.Between != nil {
			s.Between()
		}
	}
}

func (s *Server) read(w http.ResponseWriter, name string) {
	s.mu.Lock()
	content, found := s.objects[name]
	s.mu.Unlock()
	if !found {
		fail(w, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", etag(content))
	_, _ = w.Write([]byte(content)) // the client may have closed the connection
}

// list is ListObjectsV2. The token is the last name of the previous page.
func (s *Server) list(w http.ResponseWriter, query url.Values) {
	type object struct{ Key, ETag string }
	var result struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		EncodingType          string   `xml:",omitempty"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []object
	}
	result.EncodingType = query.Get("encoding-type")
	s.mu.Lock()
	defer s.mu.Unlock()
	last := ""
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(name, query.Get("prefix")) || name <= query.Get("continuation-token") {
			continue
		}
		if len(result.Contents) == s.pageSize {
			result.IsTruncated, result.NextContinuationToken = true, last
			break
		}
		last = name
		if result.EncodingType == "url" {
			name = url.QueryEscape(name)
		}
		result.Contents = append(result.Contents, object{Key: name, ETag: etag(s.objects[last])})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(result) // the client may have closed the connection
}

func etag(content string) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum([]byte(content))))
}

func fail(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>not found</Message></Error>", code)
}

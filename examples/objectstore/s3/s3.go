// Package s3 lists and reads the objects of a bucket with the API of S3, which most object stores serve. It sends no
// signature: the bucket must be readable for everyone, or the Transport of the HTTP client must sign the requests.
package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// maxList and maxObject limit the bodies of responses. A page of a list has at most 1,000 objects.
const (
	maxList   = 8 << 20
	maxObject = 1 << 20 // the limit of a ConfigMap; a larger object fails each poll until it is removed
)

// Bucket is a poll.ObjectStore of the objects with a prefix.
type Bucket struct {
	// URL is the bucket's address, such as https://s3.example.com/settings.
	URL string
	// Prefix selects the objects whose names begin with it.
	Prefix string
	// KeysOf returns the keys that depend on an object. An object without keys is not read.
	KeysOf func(name string) []kube.Key
	// Client makes the requests.
	Client *http.Client
}

// listResult is the response of ListObjectsV2.
type listResult struct {
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct{ Key, ETag string }
}

// List implements poll.ObjectStore.
func (b Bucket) List(ctx context.Context) (items []poll.Item, err error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {b.Prefix}}
	for {
		var page listResult
		body, _, err := b.get(ctx, b.URL+"?"+query.Encode(), maxList)
		if err != nil {
			return nil, err
		}
		if err := xml.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("decode the list: %w", err)
		}
		for _, object := range page.Contents {
			name := object.Key
			if page.EncodingType == "url" { // names may have characters that XML cannot contain
				if name, err = url.QueryUnescape(name); err != nil {
					return nil, fmt.Errorf("decode the name of an object: %w", err)
				}
			}
			if keys := b.KeysOf(name); len(keys) > 0 { // otherwise nothing depends on the object
				items = append(items, poll.Item{ID: name, Version: object.ETag, Keys: keys})
			}
		}
		switch {
		case !page.IsTruncated:
			return items, nil
		case page.NextContinuationToken == "":
			return nil, errors.New("the list is truncated, and has no token for the next page")
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

// Read implements poll.ObjectStore.
func (b Bucket) Read(ctx context.Context, listed poll.Item) (read poll.Item, found bool, err error) {
	segments := strings.Split(listed.ID, "/")
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	content, header, err := b.get(ctx, b.URL+"/"+strings.Join(segments, "/"), maxObject)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Code == "NoSuchKey" {
		return poll.Item{}, false, nil
	}
	if err != nil {
		return poll.Item{}, false, err
	}
	return poll.Item{Content: content, Version: header.Get("ETag")}, true, nil
}

// Error is an error response of the store.
type Error struct {
	Status int `xml:"-"`
	Code   string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("status %d, %s", e.Status, e.Code) }

// get requests a URL. The error does not contain the URL, whose query may have a signature.
func (b Bucket) get(ctx context.Context, address string, limit int64) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, errors.New("the URL of the bucket cannot be read")
	}
	response, err := b.Client.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the response: %w", err)
	case int64(len(body)) > limit:
		return nil, nil, fmt.Errorf("the response is larger than %d bytes", limit)
	case response.StatusCode != http.StatusOK:
		failed := &Error{Status: response.StatusCode, Code: "without a code"}
		_ = xml.Unmarshal(body, failed) // a proxy may answer in another format
		return nil, nil, failed
	}
	return body, response.Header, nil
}

package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Records is a system outside the cluster with records by host. A record has an owner: a host may move from one WebApp
// to another, and neither of them may overwrite or delete the other's record. Both calls may be repeated.
type Records interface {
	// Ensure makes the host point to the target. It returns a *TakenError if the record belongs to another owner.
	Ensure(ctx context.Context, record Record) error
	// Delete removes the record of the host, if it belongs to the owner. It returns nil if there is no record, or if it
	// belongs to another owner.
	Delete(ctx context.Context, record Record) error
}

// Record is the target of a host. Owner is the uid of its WebApp, because another WebApp with the same name is another
// owner.
type Record struct{ Host, Target, Owner string }

// TakenError is returned if another owner has the record of a host.
type TakenError struct{ Host string }

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("the record of %s belongs to another WebApp: change the host of one of them", e.Host)
}

// Persistent makes the WebApp stalled instead of reconciling: a user must change something.
func (e *TakenError) Persistent() bool { return true }

// HTTPRecords are records behind an API: GET, PUT and DELETE of the host below URL, with the owner in the query and the
// target as the body. The API responds with 409 if the record belongs to another owner, and to GET with the owner as
// the body, or with 404 if there is no record.
type HTTPRecords struct {
	URL    string
	Client *http.Client
}

// Ensure implements Records.
func (h HTTPRecords) Ensure(ctx context.Context, record Record) error {
	_, err := h.call(ctx, http.MethodPut, record)
	return err
}

// Delete implements Records.
func (h HTTPRecords) Delete(ctx context.Context, record Record) error {
	_, err := h.call(ctx, http.MethodDelete, record)
	return err
}

// Owner returns the owner of the record of a host, or "" if there is no record.
func (h HTTPRecords) Owner(ctx context.Context, host string) (uid string, err error) {
	return h.call(ctx, http.MethodGet, Record{Host: host})
}

// maxBody is the maximum length of a response, in bytes. A uid has 36.
const maxBody = 256

func (h HTTPRecords) call(ctx context.Context, method string, record Record) (body string, err error) {
	address := h.URL + "/" + url.PathEscape(record.Host) + "?owner=" + url.QueryEscape(record.Owner)
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(record.Target))
	if err != nil {
		return "", fmt.Errorf("record of %s: %w", record.Host, err)
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return "", fmt.Errorf("record of %s: %w", record.Host, err)
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusConflict && method == http.MethodPut:
		return "", &TakenError{record.Host}
	case code == http.StatusNotFound && method != http.MethodPut,
		code == http.StatusConflict && method == http.MethodDelete:
		return "", nil // there is no record of this owner
	case code/100 != 2:
		return "", fmt.Errorf("record of %s: %s answers %s", record.Host, method, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	return strings.TrimSpace(string(text)), err
}

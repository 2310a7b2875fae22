package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Records is the system outside the cluster that knows hosts by name. A record has an owner, or one
// WebApp would overwrite or delete what another one needs: a host may move from one to the other.
// Both calls may be repeated.
type Records interface {
	// Ensure creates or updates the record of the host. It does not change a record of another owner, and
	// returns a *TakenError for it.
	Ensure(ctx context.Context, record Record) error
	// Delete removes the record of the host, if it belongs to the owner. It returns nil if there is no
	// record, or if it belongs to another owner.
	Delete(ctx context.Context, record Record) error
}

// Record says where a host leads. Owner is the uid of its WebApp: another WebApp of the same name is
// another owner.
type Record struct{ Host, Target, Owner string }

// TakenError is returned when another owner has the record of a host.
type TakenError struct{ Host string }

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("the record of %s belongs to another WebApp: change the host of one of them", e.Host)
}

// HTTPRecords are the records behind an API: PUT and DELETE of the host below URL, with the owner in
// the query and the target as the body. It answers 409 when the record belongs to another owner.
type HTTPRecords struct {
	URL    string
	Client *http.Client
}

// Ensure implements Records.
func (h HTTPRecords) Ensure(ctx context.Context, record Record) error {
	return h.call(ctx, http.MethodPut, record)
}

// Delete implements Records.
func (h HTTPRecords) Delete(ctx context.Context, record Record) error {
	err := h.call(ctx, http.MethodDelete, record)
	if taken := (&TakenError{}); errors.As(err, &taken) {
		return nil
	}
	return err
}

func (h HTTPRecords) call(ctx context.Context, method string, record Record) error {
	address := h.URL + "/" + url.PathEscape(record.Host) + "?owner=" + url.QueryEscape(record.Owner)
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(record.Target))
	if err != nil {
		return fmt.Errorf("record of %s: %w", record.Host, err)
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return fmt.Errorf("record of %s: %w", record.Host, err)
	}
	defer response.Body.Close()
	gone := method == http.MethodDelete && response.StatusCode == http.StatusNotFound
	switch {
	case response.StatusCode == http.StatusConflict:
		return &TakenError{record.Host}
	case response.StatusCode/100 != 2 && !gone:
		return fmt.Errorf("record of %s: %s answers %s", record.Host, method, response.Status)
	}
	return nil
}

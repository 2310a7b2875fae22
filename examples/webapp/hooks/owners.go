package hooks

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxOwner is the maximum length of an owner, in bytes. A uid has 36.
const maxOwner = 256

// HTTPOwners looks up owners in the API of operator.HTTPRecords: GET of the host below URL. The API responds with the
// owner as the body, or with 404 if there is no record.
type HTTPOwners struct {
	URL    string
	Client *http.Client
}

// Owner implements Owners.
func (h HTTPOwners) Owner(ctx context.Context, host string) (uid string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/"+url.PathEscape(host), nil)
	if err != nil {
		return "", err
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return "", nil
	default:
		return "", fmt.Errorf("GET responds with %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOwner))
	return strings.TrimSpace(string(body)), err
}

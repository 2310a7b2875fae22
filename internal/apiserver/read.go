package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (r *request) get() (*response, error) {
	var options metav1.GetOptions
	if err := r.decodeQuery(&options); err != nil {
		return nil, err
	}
	r.server.mu.Lock()
	rec, version := r.table.get(keyOf(r.namespace, r.name)), r.server.version
	r.server.mu.Unlock()
	if options.ResourceVersion != "" {
		want, err := parseVersion(options.ResourceVersion)
		switch {
		case err != nil && r.kind.Uncached:
			return nil, invalidVersion(err)
		case err != nil:
			return nil, err
		}
		if want > version {
			return nil, r.tooLarge(want, version)
		}
	}
	if rec == nil {
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
	}
	if options.ResourceVersion == "" {
		current, err := rec.current(r.kind)
		if err != nil {
			return nil, err
		}
		rec = current
	}
	return r.object(http.StatusOK, rec)
}

func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, field.ErrorList{field.Invalid(field.NewPath("resourceVersion"), text, err.Error())}.ToAggregate()
	}
	return version, nil
}

func invalidVersion(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
}

// tooLarge is the error of a request for a version that does not exist yet. The real server waits for it for three
// seconds.
func tooLarge(want, current uint64) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// tooLarge is the error of a read. Without a cache, the real server does not wait.
func (r *request) tooLarge(want, current uint64) error {
	if r.kind.Uncached {
		return tooLargeForStorage(want, current)
	}
	return tooLarge(want, current)
}

// tooLargeForStorage is the error of a read from etcd.
func tooLargeForStorage(want, current uint64) error {
	err := tooLarge(want, current)
	err.ErrStatus.Details.RetryAfterSeconds = 0
	return err
}

func (r *request) listOrWatch(forceWatch bool) (*response, error) {
	options, selected, err := r.listOptions(forceWatch)
	if err != nil {
		return nil, err
	}
	if options.Watch {
		return r.watch(options, selected)
	}
	records, listMeta, err := r.selectRecords(options, selected)
	if err != nil {
		return nil, err
	}
	return r.list(records, listMeta)
}

// listedRecords returns all objects at the version of a list, that version, and the key at which the list starts.
func (r *request) listedRecords(
	options internalversion.ListOptions, selected selection,
) (records []*record, version uint64, start string, err error) {
	fail := func(err error) ([]*record, uint64, string, error) { return nil, 0, "", err }
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	current := r.server.version
	version = current
	want, err := parseVersion(options.ResourceVersion)
	exact := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact || options.ResourceVersionMatch == "" &&
		options.Limit > 0
	switch {
	case options.Continue != "":
		token, tokenErr := decodeContinue(options.Continue)
		if tokenErr != nil {
			return fail(apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", tokenErr)))
		}
		if options.ResourceVersion != "" && options.ResourceVersion != "0" {
			return fail(apierrors.NewBadRequest("specifying resource version is not allowed when using continue"))
		}
		start = prefixOf(selected.namespace) + strings.TrimPrefix(token.Start, "/")
		if token.Version > 0 {
			version = uint64(token.Version)
		}
		if version < r.table.compacted {
			return fail(continueExpired(token.Start))
		}
	case err != nil:
		return fail(invalidVersion(err))
	case want == 0: // as in "0" and "00"
	case exact && selected.name != "" && want > current:
		return fail(tooLargeForStorage(want, current)) // the real server reads one object from etcd
	case exact && (selected.name == "" || options.ResourceVersionMatch != ""):
		version = want
		if version < r.table.compacted && version < current {
			return fail(apierrors.NewResourceExpired("The resourceVersion for the provided list is too old."))
		}
	case want > current:
		return fail(r.tooLarge(want, current))
	}
	if version > current {
		return fail(r.tooLarge(version, current))
	}
	if version == current {
		return r.table.snapshot(), version, start, nil
	}
	return r.table.at(version), version, start, nil
}

// selectRecords returns the objects of a list, in the form of the request's kind, and the list's metadata.
func (r *request) selectRecords(
	options internalversion.ListOptions, selected selection,
) ([]*record, metav1.ListMeta, error) {
	fail := func(err error) ([]*record, metav1.ListMeta, error) { return nil, metav1.ListMeta{}, err }
	stored, version, start, err := r.listedRecords(options, selected)
	if err != nil {
		return fail(err)
	}
	candidates := within(stored, selected.namespace)
	if start != "" {
		candidates = candidates[sort.Search(len(candidates), func(i int) bool { return candidates[i].key >= start }):]
	}
	limit := int(min(options.Limit, math.MaxInt32))
	if limit <= 0 || options.ResourceVersion == "0" && !r.kind.Uncached {
		limit = math.MaxInt
	}
	listMeta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if selected.name != "" {
		candidates = named(candidates, keyOf(selected.namespace, selected.name))
	}
	if selected.everything() && len(candidates) <= limit {
		candidates, err = allAs(candidates, r.kind)
		return candidates, listMeta, err
	}
	var records []*record
	for i, rec := range candidates {
		if rec, err = rec.as(r.kind); err != nil {
			return fail(err)
		}
		if !selected.includes(rec) {
			continue
		}
		records = append(records, rec)
		if len(records) < limit || i == len(candidates)-1 {
			continue
		}
		last := strings.TrimPrefix(strings.TrimPrefix(rec.key, prefixOf(selected.namespace)), "/")
		if !r.listsFromStorage(options) {
			last = "/" + last
		}
		if listMeta.Continue, err = encodeContinue(last+"\x00", int64(version)); err != nil {
			return fail(err)
		}
		if selected.everything() {
			remaining := int64(len(candidates) - limit)
			listMeta.RemainingItemCount = &remaining
		}
		break
	}
	return records, listMeta, nil
}

// listsFromStorage reports whether the real server reads a page of a list from etcd, and not from its cache. It does so
// for a version like "00", of which its cache has no snapshot.
func (r *request) listsFromStorage(options internalversion.ListOptions) bool {
	zeros := len(options.ResourceVersion) > 1 && strings.Trim(options.ResourceVersion, "0") == ""
	return r.kind.Uncached || zeros && options.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan
}

// allAs returns the objects in the form of a kind. It does not change records.
func allAs(records []*record, kind *Kind) ([]*record, error) {
	if !slices.ContainsFunc(records, func(r *record) bool { return r.kind != kind }) {
		return records, nil
	}
	views := make([]*record, len(records))
	for i, rec := range records {
		var err error
		if views[i], err = rec.as(kind); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// prefixOf returns what the keys in a namespace begin with.
func prefixOf(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + "/"
}

// named returns the record with key, if it is among the sorted records.
func named(records []*record, key string) []*record {
	i := sort.Search(len(records), func(i int) bool { return records[i].key >= key })
	if i < len(records) && records[i].key == key {
		return records[i : i+1]
	}
	return nil
}

// continueToken is the content of the parameter continue, in the form of the real server.
type continueToken struct {
	APIVersion string `json:"v"`
	// Version is the version of the list. -1: the latest.
	Version int64 `json:"rv"`
	// Start is the least key of the next page, without the namespace of the request.
	Start string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

// encodeContinue returns a token. Its start has a leading slash in the lists of the real server's cache, and none in
// the lists of etcd, and in the error of a list that etcd has compacted.
func encodeContinue(start string, version int64) (string, error) {
	text, err := json.Marshal(continueToken{continueVersion, version, start})
	if err != nil {
		return "", fmt.Errorf("encode a continue token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

func decodeContinue(text string) (continueToken, error) {
	var token continueToken
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(decoded, &token)
	}
	switch {
	case err != nil:
		return token, fmt.Errorf("continue key is not valid: %w", err)
	case token.APIVersion != continueVersion:
		return token, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s",
			token.APIVersion)
	case token.Version == 0:
		return token, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)",
			continueVersion)
	case token.Start == "":
		return token, fmt.Errorf("continue key is not valid: encoded start key empty (version %s)", continueVersion)
	}
	if key := "/" + strings.TrimPrefix(token.Start, "/"); path.Clean(key) != key {
		return token, fmt.Errorf("continue key is not valid: %s", token.Start)
	}
	return token, nil
}

// continueExpired is the error of a page whose list is compacted. It has a token for the rest of the current objects.
func continueExpired(start string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	token, encodeErr := encodeContinue(strings.TrimPrefix(start, "/"), -1)
	if encodeErr == nil {
		err.ErrStatus.ListMeta.Continue = token
	}
	return err
}

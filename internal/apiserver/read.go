package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path"
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
		if err != nil {
			return nil, err
		}
		if want > version {
			return nil, tooLarge(want, version)
		}
	}
	if rec == nil {
		return nil, apierrors.NewNotFound(r.kind.groupResource(), r.name)
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

// tooLarge is the error of a request for a version that does not exist yet. The real server waits for it for three seconds.
func tooLarge(want, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
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
	r.server.mu.Lock()
	records, listMeta, err := r.selectRecords(options, selected)
	r.server.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.list(records, listMeta)
}

// selectRecords returns the objects of a list, and the list's metadata. Server.mu is held.
func (r *request) selectRecords(options internalversion.ListOptions, selected selection) ([]*record, metav1.ListMeta, error) {
	fail := func(err error) ([]*record, metav1.ListMeta, error) { return nil, metav1.ListMeta{}, err }
	current := r.server.version
	version, start := current, ""
	want, err := parseVersion(options.ResourceVersion)
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
		return fail(apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err)))
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		options.ResourceVersionMatch == "" && options.Limit > 0 && want > 0 && selected.name == "":
		version = want
		if version < r.table.compacted && version < current {
			return fail(apierrors.NewResourceExpired("The resourceVersion for the provided list is too old."))
		}
	case want > current:
		return fail(tooLarge(want, current))
	}
	if version > current {
		return fail(tooLarge(version, current))
	}
	candidates := within(r.recordsAt(version), selected.namespace)
	if start != "" {
		candidates = candidates[sort.Search(len(candidates), func(i int) bool { return candidates[i].key >= start }):]
	}
	limit := int(min(options.Limit, math.MaxInt32))
	if limit <= 0 || options.ResourceVersion == "0" {
		limit = math.MaxInt
	}
	listMeta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if selected.name != "" {
		candidates = named(candidates, keyOf(selected.namespace, selected.name))
	}
	if selected.everything() && len(candidates) <= limit {
		return candidates, listMeta, nil
	}
	var records []*record
	for i, rec := range candidates {
		if !selected.includes(rec) {
			continue
		}
		records = append(records, rec)
		if len(records) < limit || i == len(candidates)-1 {
			continue
		}
		if listMeta.Continue, err = encodeContinue(strings.TrimPrefix(rec.key, prefixOf(selected.namespace)), int64(version)); err != nil {
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

// recordsAt returns all objects as they were at version, in the order of keys.
func (r *request) recordsAt(version uint64) []*record {
	if version == r.server.version {
		return r.table.snapshot()
	}
	return r.table.at(version)
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

func encodeContinue(last string, version int64) (string, error) {
	text, err := json.Marshal(continueToken{continueVersion, version, "/" + strings.TrimPrefix(last, "/") + "\x00"})
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
		return token, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s", token.APIVersion)
	case token.Version == 0:
		return token, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)", continueVersion)
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
	token, encodeErr := encodeContinue(strings.TrimSuffix(start, "\x00"), -1)
	if encodeErr == nil {
		err.ErrStatus.ListMeta.Continue = token
	}
	return err
}

package client

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FieldConflict is an applied field that another manager owns, with another value.
type FieldConflict struct {
	// Manager is the other field manager: "kubectl-edit".
	Manager string `json:"manager"`
	// Field is the field's path, in the API server's words: "spec.replicas",
	// `spec.template.spec.containers[name="web"].image`.
	Field string `json:"field"`
}

// ConflictError reports that other field managers own applied fields. It wraps the response of the API server;
// its class in package retry is Invalid, because a retry does not help.
type ConflictError struct {
	// FieldOwner is the field owner of the apply.
	FieldOwner string
	// Conflicts are the fields in conflict, in the API server's order.
	Conflicts []FieldConflict
	// Err is the API server's response.
	Err error
}

// Error returns the managers, their fields and the possible solutions.
func (e *ConflictError) Error() string {
	fields := map[string][]string{}
	for _, c := range e.Conflicts {
		fields[c.Manager] = append(fields[c.Manager], c.Field)
	}
	var held []string
	for _, manager := range slices.Sorted(maps.Keys(fields)) {
		held = append(held, fmt.Sprintf("%q has %s", manager, strings.Join(fields[manager], ", ")))
	}
	return fmt.Sprintf("conflict of field owner %q with others that have set other values: %s: option Force takes "+
		"the fields; "+
		"or leave them to the others, by not applying them", e.FieldOwner, strings.Join(held, "; "))
}

// Unwrap returns the API server's response.
func (e *ConflictError) Unwrap() error { return e.Err }

// conflictsOf returns the fields in conflict of a failed apply.
func conflictsOf(err error) []FieldConflict {
	details := detailsOf(err)
	if details == nil {
		return nil
	}
	var conflicts []FieldConflict
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			conflicts = append(conflicts,
				FieldConflict{Manager: managerIn(cause.Message), Field: strings.TrimPrefix(cause.Field, ".")})
		}
	}
	return conflicts
}

// managerIn returns the manager from the message of a cause, because a cause has no field for it:
//
//	conflict with "kubectl-edit" with subresource "status" using apps/v1 at 2026-01-02T15:04:05Z
//
// A message of another form is returned as it is.
func managerIn(message string) string {
	start := strings.IndexByte(message, '"')
	if start < 0 {
		return message
	}
	quoted, err := strconv.QuotedPrefix(message[start:])
	if err != nil {
		return message
	}
	manager, err := strconv.Unquote(quoted)
	if err != nil {
		return message
	}
	return manager
}

// asReplaced adds ErrReplaced to an error about the required uid: another object has the name.
func (t target) asReplaced(err error, uid types.UID) error {
	details := detailsOf(err)
	if uid == "" || details == nil {
		return asChanged(err)
	}
	for _, cause := range details.Causes {
		if cause.Field == "metadata.uid" {
			return t.conflict(ErrReplaced, "its uid is not %s: %s", uid, err.Error())
		}
	}
	return asChanged(err)
}

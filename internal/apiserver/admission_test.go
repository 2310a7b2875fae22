package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewer is an admission of two functions.
type reviewer struct {
	mutate, validate func(context.Context, *Review) error
}

func (a reviewer) Mutate(ctx context.Context, r *Review) error   { return a.mutate(ctx, r) }
func (a reviewer) Validate(ctx context.Context, r *Review) error { return a.validate(ctx, r) }

func noReview(context.Context, *Review) error { return nil }

func TestAdmissionReviewsEachWrite(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var reviews []string
	note := func(phase string) func(context.Context, *Review) error {
		return func(_ context.Context, r *Review) error {
			reviews = append(reviews, fmt.Sprintf("%s %s %s/%s %s new=%t old=%t dryRun=%t", phase, r.Operation, r.Resource.Resource, r.Subresource, r.Name, r.Object != nil, r.Old != nil, r.DryRun))
			return nil
		}
	}
	s.SetAdmission(reviewer{note("mutate"), note("validate")})
	widget := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}`
	const path = "/apis/example.com/v1/namespaces/shop/widgets"
	steps := []struct {
		method, path, body, contentType string
		want                            string // without the phase
	}{
		{"POST", path, widget, "", "CREATE widgets/ a new=true old=false dryRun=false"},
		{"PATCH", path + "/a/status", `{"status":{"ready":true}}`, "application/merge-patch+json", "UPDATE widgets/status a new=true old=true dryRun=false"},
		{"PATCH", path + "/a?fieldManager=m&dryRun=All", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"note":"x"}}`, "application/apply-patch+yaml", "UPDATE widgets/ a new=true old=true dryRun=true"},
		{"PATCH", path + "/b?fieldManager=m", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"}}`, "application/apply-patch+yaml", "CREATE widgets/ b new=true old=false dryRun=false"},
		{"DELETE", path + "/a", "", "", "DELETE widgets/ a new=false old=true dryRun=false"},
		{"DELETE", path, "", "", "DELETE widgets/  new=false old=true dryRun=false"},
		{"GET", path, "", "", ""},
	}
	for _, step := range steps {
		reviews = nil
		mustSend(t, s, step.method, step.path, step.body, "Content-Type", step.contentType)
		want := []string{"mutate " + step.want, "validate " + step.want}
		if step.want == "" {
			want = nil
		}
		if !slices.Equal(reviews, want) {
			t.Errorf("%s %s: reviews %q, want %q", step.method, step.path, reviews, want)
		}
	}
}

func TestMutatedObjectIsDefaultedValidatedAndStored(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.SetAdmission(reviewer{func(_ context.Context, r *Review) error {
		if r.Object != nil {
			r.Object.SetLabels(map[string]string{"mutated": "yes"})
			r.Warn("changed")
		}
		return nil
	}, func(_ context.Context, r *Review) error {
		if r.Object != nil && r.Object.GetLabels()["mutated"] != "yes" {
			return errors.New("not mutated")
		}
		return nil
	}})
	if text := mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"a"}}`); decodeMetadata(t, text).Labels["mutated"] != "yes" {
		t.Errorf("created: %s", text)
	}
	if text := mustSend(t, s.Fork(), "PUT", configMapsPath+"/a", `{"metadata":{"name":"a"}}`); decodeMetadata(t, text).Labels["mutated"] != "yes" {
		t.Errorf("a fork has no admission: %s", text)
	}
}

func TestAdmissionDenies(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 1)
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "cm-0000", errors.New("no"))
	s.SetAdmission(reviewer{noReview, func(context.Context, *Review) error { return denied }})
	before := s.Version()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		path := configMapsPath + "/cm-0000"
		if method == "POST" {
			path = configMapsPath
		}
		code, text := send(t, s, method, path, `{"metadata":{"name":"cm-0000","labels":{"x":"y"}}}`, "Content-Type", map[string]string{"PATCH": "application/merge-patch+json"}[method])
		if method == "POST" {
			code, text = send(t, s, method, path, `{"metadata":{"name":"new"}}`)
		}
		if method == "DELETE" {
			code, text = send(t, s, method, path, "")
		}
		if code != http.StatusForbidden || !strings.Contains(text, "no") {
			t.Errorf("%s: %d %s", method, code, text)
		}
	}
	if s.Version() != before {
		t.Error("a denied write was stored")
	}
}

// An admission that writes to the object under review: the reviewed update is repeated with the new object.
func TestAdmissionMayMakeRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 1)
	var reviews atomic.Int64
	s.SetAdmission(reviewer{noReview, func(ctx context.Context, r *Review) error {
		if r.UserAgent != "" || reviews.Add(1) > 1 {
			return nil
		}
		mustSend(t, s, "PATCH", configMapsPath+"/cm-0000", `{"data":{"other":"v"}}`, "Content-Type", "application/merge-patch+json", "User-Agent", "webhook")
		return ctx.Err()
	}})
	text := mustSend(t, s, "PATCH", configMapsPath+"/cm-0000", `{"data":{"mine":"v"}}`, "Content-Type", "application/merge-patch+json")
	if !strings.Contains(text, `"other":"v"`) || !strings.Contains(text, `"mine":"v"`) || reviews.Load() != 2 {
		t.Errorf("%d reviews: %s", reviews.Load(), text)
	}
}

// Another client creates the object while a request creates it: an apply then changes that object, a create fails.
func TestConcurrentlyCreatedObject(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	busy, deleted := false, false
	s.SetAdmission(reviewer{noReview, func(_ context.Context, r *Review) error {
		if busy || r.Operation != "CREATE" {
			return nil
		}
		busy = true
		defer func() { busy = false }()
		mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"`+r.Name+`"},"data":{"x":"y"}}`)
		if deleted {
			mustSend(t, s, "DELETE", configMapsPath+"/"+r.Name, "")
		}
		return nil
	}})
	applied := mustSend(t, s, "PATCH", configMapsPath+"/a?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`,
		"Content-Type", "application/apply-patch+yaml")
	if !strings.Contains(applied, `"data":{"k":"v","x":"y"}`) {
		t.Errorf("applied: %s, want the data of both clients", applied)
	}
	for _, deleted = range []bool{false, true} {
		code, text := send(t, s, "POST", configMapsPath, fmt.Sprintf(`{"metadata":{"name":"b-%t"}}`, deleted))
		if deleted { // the name is free again
			if code != http.StatusCreated {
				t.Errorf("create after a deletion: %d %s", code, text)
			}
		} else if code != http.StatusConflict || !strings.Contains(text, "AlreadyExists") {
			t.Errorf("create: %d %s, want AlreadyExists", code, text)
		}
	}
}

package crds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/kube"
)

// isPatchOf reports whether a request patches the Robot with this name; "": any Robot.
func isPatchOf(req *http.Request, name string) bool {
	return req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/robots/"+name)
}

// rejectPatches makes the API server reject patches of the Robots whose names begin with prefix.
func (w *world) rejectPatches(prefix string, err *apierrors.StatusError) {
	w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
		if isPatchOf(req, prefix) {
			return response(req, err)
		}
		return do()
	}
}

// migrate migrates the Robots, and reports an error or another number of rewritten objects.
func (w *world) migrate(rewritten int) {
	w.Helper()
	if m, err := crd.Migrate(w.Context(), w.client(), robotsName); err != nil || m.Rewritten != rewritten {
		w.Errorf("%v, %v, want %d objects to be rewritten", m, err, rewritten)
	}
}

// inWorld runs f in a bubble, in a world with prepared objects.
func inWorld(t *testing.T, objects int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.prepare(objects)
		f(t, w)
	})
}

// isFinish reports whether a request sets status.storedVersions.
func isFinish(req *http.Request) bool {
	return req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/customresourcedefinitions/"+robotsName+"/status")
}

// response returns an error of the API server.
func response(req *http.Request, err *apierrors.StatusError, header ...string) (*http.Response, error) {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	body, _ := json.Marshal(status)
	res := &http.Response{
		StatusCode: int(err.ErrStatus.Code), Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(bytes.NewReader(body)),
	}
	for i := 0; i+1 < len(header); i += 2 {
		res.Header.Set(header[i], header[i+1])
	}
	return res, nil
}

// once returns a function that calls f the first time.
func once(f func()) func() {
	var once sync.Once
	return func() { once.Do(f) }
}

// robot returns a Robot in a version.
func robot(version, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion("example.com/" + version)
	obj.SetKind("Robot")
	obj.SetNamespace("default")
	obj.SetName(name)
	return obj
}

func TestMigrationWithConcurrentChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, c *client.Client, obj *unstructured.Unstructured) error{
		"object changed": func(w *world, c *client.Client, obj *unstructured.Unstructured) error {
			_, err := client.Patch(w.Context(), c, obj, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"color":7}}`)))
			return err
		},
		"object deleted": func(w *world, c *client.Client, obj *unstructured.Unstructured) error {
			return client.Delete(w.Context(), c, obj)
		},
		"object replaced": func(w *world, c *client.Client, obj *unstructured.Unstructured) error {
			if err := client.Delete(w.Context(), c, obj); err != nil {
				return err
			}
			_, err := client.Create(w.Context(), c, robot("v1", obj.GetName(), map[string]any{"size": int64(1)}))
			return err
		},
		"object created": func(w *world, c *client.Client, _ *unstructured.Unstructured) error {
			_, err := client.Create(w.Context(), c, robot("v1", "a-new-one", map[string]any{"size": int64(1)}))
			return err
		},
		"object migrated by another process": func(w *world, c *client.Client, _ *unstructured.Unstructured) error {
			_, err := crd.Migrate(w.Context(), c, robotsName)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, func(t *testing.T, w *world) {
				changed := once(func() {
					if err := change(w, w.other(), robot("v1", "r0002", nil)); err != nil {
						t.Error(err)
					}
				})
				w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
					if isPatchOf(req, "r0002") {
						changed()
					}
					return do()
				}
				if m, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil || len(m.Failures) > 0 || m.Done != 5 {
					t.Errorf("%v, %v", m, err)
				}
				w.checkStored("at the end")
				if diff := cmp.Diff([]string{"v2"}, w.definition().Status.StoredVersions); diff != "" || w.storedIn()["v1"] > 0 {
					t.Errorf("%v; storedVersions (-want +got):\n%s", w.storedIn(), diff)
				}
			})
		})
	}
}

// An admission webhook or an old API server, which does not tolerate invalid values that an update leaves, rejects two
// objects.
func TestMigrationNamesObjectsThatFail(t *testing.T) {
	t.Parallel()
	inWorld(t, 5, func(t *testing.T, w *world) {
		for _, name := range []string{"r0001a", "r0003a"} {
			if _, err := client.Create(t.Context(), w.other(), robot("v1", name, map[string]any{"color": int64(1)})); err != nil {
				t.Fatal(err)
			}
		}
		back := release2() // the two objects are stored in v1
		if err := w.ensure(back); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"r0001a", "r0003a"} {
			if _, _, err := client.EditMetadata(t.Context(), w.other(), robot("v1", name, nil), func(labels, _ map[string]string) { labels["a"] = "b" }); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.ensure(release3()); err != nil {
			t.Fatal(err)
		}
		w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
			if isPatchOf(req, "r0001a") || isPatchOf(req, "r0003a") {
				return response(req, apierrors.NewInvalid(schema.GroupKind{Group: "example.com", Kind: "Robot"}, "r", field.ErrorList{
					field.Required(field.NewPath("spec", "length"), ""),
				}))
			}
			return do()
		}
		check := func(c *client.Client, rewritten int) {
			t.Helper()
			m, err := crd.Migrate(t.Context(), c, robotsName)
			if err == nil || len(m.Failures) != 2 || m.Rewritten != rewritten || m.Done != 7 {
				t.Fatalf("%v, %v", m, err)
			}
			for i, part := range []string{"default/r0001a", "default/r0003a"} {
				for _, text := range []string{m.Failures[i].Error(), err.Error()} {
					if !strings.Contains(text, part) || !strings.Contains(text, "spec.length: Required value") {
						t.Errorf("the error %q lacks %q", text, part)
					}
				}
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "2 of 7 objects were not rewritten in v2, so status.storedVersions stays [v1, v2]") {
				t.Errorf("the error is %v", err)
			}
		}
		check(w.client(func(c *client.Config) { c.DryRun = true }), 5)
		if stored := w.storedIn(); stored["v1"] != 7 || len(w.definition().Annotations) > 0 {
			t.Errorf("after a dry run objects are stored in %v, annotations %v", stored, w.definition().Annotations)
		}
		check(w.client(), 5)
		check(w.client(), 0)
		if stored := w.storedIn(); stored["v1"] != 2 {
			t.Errorf("objects are stored in %v", stored)
		}
		for _, name := range []string{"r0001a", "r0003a"} {
			if err := client.Delete(t.Context(), w.other(), robot("v2", name, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil {
			t.Errorf("after the correction: %v, %v", m, err)
		}
		w.checkMigrated("after the correction", 5)
	})
}

// While a migration runs, the storage version changes back and forth, and an object is written in the old version.
func TestMigrationStartsAgainWhenStorageVersionChanges(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(req *http.Request) bool{
		"between two objects": func(req *http.Request) bool { return isPatchOf(req, "r0002") },
		"before the end":      isFinish,
		"before the mark was written": func(req *http.Request) bool {
			return strings.Contains(req.URL.RawQuery, "limit=1&") || strings.HasSuffix(req.URL.RawQuery, "limit=1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, func(t *testing.T, w *world) {
				change := once(func() {
					if err := w.ensure(release2()); err != nil {
						t.Error(err)
					}
					for _, name := range []string{"r0000", "r0004"} {
						old := robot("v1", name, nil)
						if _, err := client.Patch(t.Context(), w.other(), old, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
							t.Error(err)
						}
					}
					if err := w.ensure(release3()); err != nil {
						t.Error(err)
					}
				})
				w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
					if at(req) {
						change()
					}
					return do()
				}
				if m, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil {
					t.Errorf("%v, %v", m, err)
				}
				w.checkMigrated("at the end", 5)
			})
		})
	}
}

// The storage version goes back to the old one, and stays there.
func TestMigrationFollowsStorageVersion(t *testing.T) {
	t.Parallel()
	inWorld(t, 5, func(t *testing.T, w *world) {
		change := once(func() {
			if err := w.ensure(release2()); err != nil {
				t.Error(err)
			}
		})
		w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
			if isPatchOf(req, "r0003") {
				change()
			}
			return do()
		}
		m, err := crd.Migrate(t.Context(), w.client(), robotsName)
		if err != nil || m.Version != "v1" {
			t.Errorf("%v, %v", m, err)
		}
		if diff := cmp.Diff([]string{"v1"}, w.definition().Status.StoredVersions); diff != "" || w.storedIn()["v1"] != 5 {
			t.Errorf("objects are stored in %v (-want +got):\n%s", w.storedIn(), diff)
		}
	})
}

// A certificate authority that is renewed changes the spec and not the storage version.
func TestMigrationContinuesWhenOtherFieldsChange(t *testing.T) {
	t.Parallel()
	inWorld(t, 300, func(t *testing.T, w *world) {
		changes := 0
		w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
			if isPatchOf(req, "r0100") || isPatchOf(req, "r0270") || isFinish(req) && changes < 5 {
				changes++
				live := w.definition().DeepCopy()
				live.Spec.Conversion.Webhook.ClientConfig.Service.Path = new(fmt.Sprintf("/%d", changes))
				if _, err := client.Update(t.Context(), w.other(), live); err != nil {
					t.Error(err)
				}
			}
			return do()
		}
		m, err := crd.Migrate(t.Context(), w.client(), robotsName)
		if err != nil || m.Rewritten != 300 || m.Done != 300 || changes != 5 {
			t.Errorf("%v, %v after %d changes", m, err, changes)
		}
		w.checkMigrated("at the end", 300)
	})
}

func TestMigrationProgressByPage(t *testing.T) {
	t.Parallel()
	inWorld(t, 300, func(t *testing.T, w *world) {
		compacted := 0
		lists := 0
		w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/robots") {
				lists++
				if req.URL.Query().Get("continue") != "" && compacted < 1 {
					compacted++
					w.server.Compact() // so the state of the first page is gone
				}
			}
			return do()
		}
		m, err := crd.Migrate(t.Context(), w.client(), robotsName, crd.Pace(20))
		if got := m.String(); err != nil || got != "robots.example.com to v2: 300 of 300 objects done, 300 rewritten, 0 failed" {
			t.Errorf("%s, %v", got, err)
		}
		if compacted != 1 || lists != 4 {
			t.Errorf("%d compactions, %d lists", compacted, lists)
		}
		w.checkMigrated("at the end", 300)
	})
}

// A pace of one object in 10,000 years is not the same as none.
func TestMigrationWithSlowPace(t *testing.T) {
	t.Parallel()
	inWorld(t, 3, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if m, err := crd.Migrate(ctx, w.client(), robotsName, crd.Pace(1e-12)); !errors.Is(err, context.DeadlineExceeded) || m.Rewritten != 1 {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// The API server fails in several ways, for a minute each.
func TestMigrationOutlivesFailures(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(req *http.Request) (*http.Response, error){
		"unreachable": func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"throttled": func(req *http.Request) (*http.Response, error) {
			return response(req, apierrors.NewTooManyRequests("later", 7), "Retry-After", "7")
		},
		"internal errors": func(req *http.Request) (*http.Response, error) {
			return response(req, apierrors.NewInternalError(errors.New("conversion webhook failed")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, func(t *testing.T, w *world) {
				failing := map[string]time.Time{} // by method and path: the end of the failures
				w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
					if strings.HasSuffix(req.URL.Path, "/robots") || isPatchOf(req, "r0002") || isFinish(req) {
						what := req.Method + req.URL.Path
						if failing[what].IsZero() {
							failing[what] = time.Now().Add(time.Minute)
						}
						if time.Now().Before(failing[what]) {
							return fail(req)
						}
					}
					return do()
				}
				began := time.Now()
				m, err := crd.Migrate(t.Context(), w.client(), robotsName)
				if elapsed := time.Since(began); err != nil || elapsed < 3*time.Minute || elapsed > 5*time.Minute || len(failing) != 3 {
					t.Errorf("%v, %v after %s, failures of %v", m, err, elapsed, failing)
				}
				w.checkMigrated("at the end", 5)
			})
		})
	}
}

// One object always fails, and does not prevent the others.
func TestMigrationContinuesAfterFailingObject(t *testing.T) {
	t.Parallel()
	resource := robotsResource()
	for name, test := range map[string]struct {
		err  *apierrors.StatusError
		ends bool // with the first failure
	}{
		"internal error":           {apierrors.NewInternalError(errors.New("the cause")), false},
		"denied by webhook":        {apierrors.NewForbidden(resource, "r0002", errors.New("the cause")), false},
		"conflict without changes": {apierrors.NewConflict(resource, "r0002", errors.New("the cause")), false},
		"too large":                {apierrors.NewRequestEntityTooLargeError("the cause"), false},
		"not found elsewhere":      {apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "the cause"), false},
		"no permission": {apierrors.NewForbidden(resource, "r0002", errors.New(
			`the cause: User "u" cannot patch resource "robots" in API group "example.com" in the namespace "default"`)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, func(t *testing.T, w *world) {
				w.rejectPatches("r0002", test.err)
				m, err := crd.Migrate(t.Context(), w.client(), robotsName)
				if err == nil || !strings.Contains(err.Error(), "r0002") || !strings.Contains(err.Error(), "the cause") {
					t.Errorf("%v, %v", m, err)
				}
				if want := map[bool]int{false: 1, true: 3}[test.ends]; w.storedIn()["v1"] != want {
					t.Errorf("objects are stored in %v, want %d in v1", w.storedIn(), want)
				}
				w.checkStored("after the failure")
				w.handle = nil
				w.migrate(map[bool]int{false: 1, true: 3}[test.ends])
				w.checkMigrated("at the end", 5)
			})
		})
	}
}

// The API server rejects pages with objects whose conversion fails. The migration names these objects, and rewrites the
// others.
func TestMigrationNamesObjectsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	inWorld(t, 300, func(t *testing.T, w *world) {
		broken := []string{"r0000", "r0002", "r0003", "r0260", "r0299"}
		w.broken = func(name string) bool { return slices.Contains(broken, name) }
		began := time.Now()
		m, err := crd.Migrate(t.Context(), w.client(), robotsName)
		if err == nil || len(m.Failures) != len(broken) || m.Rewritten != 295 || m.Done != 300 || m.Total != 300 {
			t.Fatalf("%v, %v", m, err)
		}
		for i, name := range broken {
			if text := m.Failures[i].Error(); !strings.Contains(text, "read Robot default/"+name+": ") || !strings.Contains(text, "the cause") {
				t.Errorf("failure %d is %q, want %s", i, text, name)
			}
		}
		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("the migration took %s", took)
		}
		w.checkStored("after the failure")
		w.broken = nil
		w.migrate(len(broken))
		w.checkMigrated("at the end", 300)
	})
}

// A conversion that always fails ends the migration after 100 objects. An object that cannot be read in any version has no name:
// the error has the object before it.
func TestMigrationEndsIfObjectsCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		broken   func(name string) bool
		readable bool // in the old version
		want     string
		failed   int
	}{
		"all":                    {func(string) bool { return true }, true, "the migration ends after 100 objects that cannot be read: 100 of 110 objects", 100},
		"first one without name": {func(string) bool { return true }, false, "the first object cannot be read in any version", 0},
		"third one without name": {func(name string) bool { return name == "r0002" }, false, "the object after default/r0001 cannot be read in any version", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 110, func(t *testing.T, w *world) {
				w.handle = func(_ int, req *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
					if !test.readable && w.broken != nil && strings.HasPrefix(req.URL.Path, "/apis/example.com/v1/") {
						return response(req, apierrors.NewInternalError(errors.New("the cause")))
					}
					return do()
				}
				w.broken = test.broken
				m, err := crd.Migrate(t.Context(), w.client(), robotsName)
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "the cause") || len(m.Failures) != test.failed {
					t.Errorf("%v, %.300v", m, err)
				}
				w.checkStored("at the end")
				w.broken = nil
				if _, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil {
					t.Errorf("the next call: %v", err)
				}
				w.checkMigrated("after the repair", 110)
			})
		})
	}
}

// The error names the first 100 objects, the result all.
func TestMigrationErrorIsBounded(t *testing.T) {
	t.Parallel()
	inWorld(t, 120, func(t *testing.T, w *world) {
		w.rejectPatches("", apierrors.NewBadRequest("no"))
		m, err := crd.Migrate(t.Context(), w.client(), robotsName)
		if err == nil || len(m.Failures) != 120 || strings.Count(err.Error(), "\n") != 101 || !strings.HasSuffix(err.Error(), "and 20 more (Migration.Failures)") {
			t.Errorf("%v, %v", m, err)
		}
	})
}

func TestConcurrentMigrations(t *testing.T) {
	t.Parallel()
	inWorld(t, 40, func(t *testing.T, w *world) {
		var running sync.WaitGroup
		var marks []string
		w.handle = func(_ int, _ *http.Request, do func() (*http.Response, error)) (*http.Response, error) {
			res, err := do()
			w.mu.Lock()
			defer w.mu.Unlock()
			if mark := w.definition().Annotations["evenkeel.dev/storage-migration"]; !slices.Contains(marks, mark) {
				marks = append(marks, mark)
			}
			return res, err
		}
		for i := range 3 {
			running.Go(func() { // waited for below
				time.Sleep(time.Duration(i) * time.Second)
				if m, err := crd.Migrate(t.Context(), w.client(), robotsName, crd.Pace(float64(3+i))); err != nil || m.Rewritten == 0 {
					t.Errorf("%v, %v", m, err)
				}
			})
		}
		running.Wait()
		w.checkMigrated("at the end", 40)
		if len(marks) > 3 { // none, and those that are written before the first one is read
			t.Errorf("the calls replaced each other's marks: %q", marks)
		}
	})
}

// The mark is copied into another cluster, or is left by a migration in the other direction.
func TestInvalidMarksIgnored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(mark map[string]any){
		"of another definition": func(mark map[string]any) { mark["uid"] = "other" },
		"of another version":    func(mark map[string]any) { mark["version"] = "v1" },
		"of an old generation":  func(mark map[string]any) { mark["generation"] = mark["generation"].(float64) - 2 },
		"without a version":     func(mark map[string]any) { delete(mark, "after") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 5, func(t *testing.T, w *world) {
				revision, _ := strconv.Atoi(w.server.Version())
				d := w.definition().DeepCopy()
				// Objects with a later version than this one would be skipped, if the mark were valid: all of them.
				mark := map[string]any{"uid": string(d.UID), "generation": float64(d.Generation), "version": "v2", "after": "1"}
				change(mark)
				text, err := json.Marshal(mark)
				if err != nil {
					t.Fatal(err)
				}
				d.Annotations = map[string]string{"evenkeel.dev/storage-migration": string(text)}
				if _, err := client.Update(t.Context(), w.other(), d); err != nil || revision < 5 {
					t.Fatal(err, revision)
				}
				w.migrate(5)
				w.checkMigrated("at the end", 5)
			})
		})
	}
}

func TestMigrationThroughServedVersion(t *testing.T) {
	t.Parallel()
	inWorld(t, 5, func(t *testing.T, w *world) {
		unserved := release3()
		unserved.Spec.Versions[1].Served = false
		if err := w.ensure(unserved, crd.AllowNarrowing()); err != nil {
			t.Fatal(err)
		}
		w.migrate(5)
		w.checkMigrated("at the end", 5)
	})
}

func TestMigrationRejected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(w *world)
		want    string
	}{
		"no definition": {func(*world) {}, "not found"},
		"nothing served": {func(w *world) {
			w.prepare(1)
			d := release3()
			d.Spec.Versions[0].Served, d.Spec.Versions[1].Served = false, false
			if err := w.ensure(d, crd.AllowNarrowing()); err != nil {
				w.Error(err)
			}
		}, "none of its versions is served"},
		"being deleted": {func(w *world) {
			w.prepare(0)
			held := robot("v2", "held", map[string]any{})
			held.SetFinalizers([]string{"example.com/hold"})
			if _, err := client.Create(w.Context(), w.other(), held); err != nil {
				w.Error(err)
			}
			live := w.definition().DeepCopy()
			live.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			if err := client.Delete(w.Context(), w.other(), live); err != nil {
				w.Error(err)
			}
		}, client.ErrTerminating.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				test.prepare(w)
				began := time.Now()
				m, err := crd.Migrate(t.Context(), w.client(), robotsName)
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), robotsName) || time.Since(began) > time.Second {
					t.Errorf("%v, %v after %s, want %q", m, err, time.Since(began), test.want)
				}
			})
		})
	}
}

// The previous release restarts, or is rolled back to, while the objects are in the new version.
func TestPreviousReleaseKeepsNewerDefinition(t *testing.T) {
	t.Parallel()
	inWorld(t, 5, func(t *testing.T, w *world) {
		previous := func(when string, newer bool) {
			t.Helper()
			c := w.client()
			ensured, err := crd.Ensure(t.Context(), c, []*apiextensionsv1.CustomResourceDefinition{release2()}, crd.AcceptNewer())
			if err != nil || ensured[0].Newer != newer || newer && ensured[0].Outcome != client.Unchanged {
				t.Fatalf("%s: %+v, %v", when, ensured, err)
			}
			// It reads and writes its own version.
			for i := range 5 {
				obj, err := client.Get[*unstructured.Unstructured](t.Context(), c, kube.Key{Namespace: "default", Name: fmt.Sprintf("r%04d", i)},
					client.OfKind(robot("v1", "", nil).GroupVersionKind()))
				if err != nil {
					t.Fatal(err)
				}
				if size, _, _ := unstructured.NestedInt64(obj.Object, "spec", "size"); size != int64(i) {
					t.Errorf("%s: object %d has the size %d", when, i, size)
				}
				if _, _, err := client.EditMetadata(t.Context(), c, obj, func(labels, _ map[string]string) { labels["seen"] = when }); err != nil {
					t.Error(err)
				}
			}
		}
		previous("before-the-migration", true)
		if _, err := crd.Migrate(t.Context(), w.client(), robotsName); err != nil {
			t.Fatal(err)
		}
		previous("after-the-migration", true)
		w.checkMigrated("after the previous release has written", 5)
		// The user declares that the previous release is not needed any more.
		if err := w.ensure(release4()); err != nil {
			t.Fatal(err)
		}
		// From then on its Ensure adds the version again.
		previous("after-the-removal", false)
		if storage := w.definition().Spec.Versions[0]; storage.Name != "v1" || !storage.Storage {
			t.Errorf("the definition has the version %s, storage %t", storage.Name, storage.Storage)
		}
	})
}

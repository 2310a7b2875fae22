package owned

import (
	"iter"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// frozen is an informer of ConfigMaps that shows the objects that the test has put into it: a stale cache.
type frozen struct {
	cache.Informer
	t       *testing.T
	objects map[kube.Key]*corev1.ConfigMap
}

// shown returns f for a client.
func (f *frozen) shown() client.Informer { return cache.Hold[cache.Informer](f) }

func (*frozen) ReadsFrom(string) bool                 { return true }
func (f *frozen) Name() string                        { return "frozen" }
func (f *frozen) Kind() schema.GroupVersionKind       { return configMapKind }
func (f *frozen) NewObject() (kube.Object, bool)      { return &corev1.ConfigMap{}, true }
func (f *frozen) Covers(string, labels.Selector) bool { return true }

func (f *frozen) Metadata() cache.Reader { return f }

func (f *frozen) Object(key kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	obj, ok := f.objects[key]
	if !ok {
		return nil, nil, false, nil
	}
	return obj.DeepCopy(), nil, true, nil
}

func (f *frozen) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		for key, obj := range f.objects {
			if (namespace == "" || key.Namespace == namespace) && (selector == nil || selector.Matches(labels.Set(obj.Labels))) &&
				!yield(obj.DeepCopy(), nil) {
				return
			}
		}
	}
}

// recorder collects Events.
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (r *recorder) Event(regarding corev1.ObjectReference, eventType, reason, _, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, eventType+" "+reason+" "+regarding.Name+": "+note)
}

func (r *recorder) notes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

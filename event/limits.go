package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// What the API server accepts, in bytes.
const (
	maxShort = 128 // reason, action, reportingInstance
	maxNote  = 1024
)

// Regarding returns the reference by which Events speak of obj, for Recorder.Event and for what
// takes a reference. It makes no request.
//
// Errors: a nil argument; an obj whose kind the cluster does not know.
func Regarding(cluster *kube.Cluster, obj kube.Object) (corev1.ObjectReference, error) {
	switch {
	case kube.IsNil(obj):
		return corev1.ObjectReference{}, errors.New("refer to an object in an event: it is nil")
	case cluster == nil:
		return corev1.ObjectReference{}, fmt.Errorf("refer to %s in an event: the cluster is nil: kube.Connect makes one", kube.KeyOf(obj))
	}
	kind, err := cluster.KindOf(obj)
	if err != nil {
		return corev1.ObjectReference{}, fmt.Errorf("refer to %s in an event: %w", kube.KeyOf(obj), err)
	}
	return corev1.ObjectReference{
		APIVersion:      kind.GroupVersion().String(),
		Kind:            kind.Kind,
		Namespace:       obj.GetNamespace(),
		Name:            obj.GetName(),
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}, nil
}

// acceptable returns what the API server would accept in place of what was said: nothing is
// lost because somebody forgot an action.
func acceptable(eventType, reason, action, note string) said {
	if eventType != corev1.EventTypeNormal && eventType != "" {
		eventType = corev1.EventTypeWarning
	} else {
		eventType = corev1.EventTypeNormal
	}
	reason, action = cut(reason, maxShort), cut(action, maxShort)
	switch {
	case reason == "" && action == "":
		reason, action = "Unknown", "Unknown"
	case reason == "":
		reason = action
	case action == "":
		action = reason
	}
	return said{eventType: eventType, reason: reason, action: action, note: cut(note, maxNote)}
}

// cut shortens s to at most so many bytes, between two characters. What is no UTF-8 is replaced
// first: encoding it would make it longer.
func cut(s string, most int) string {
	const replacement, ellipsis = "\uFFFD", "..."
	s = strings.ToValidUTF8(s, replacement)
	if len(s) <= most {
		return s
	}
	end := most - len(ellipsis)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// nameOf returns a name for an event about an object: with its time as the number, events of one
// object stand together in a list, in their order.
func nameOf(object string, number uint64) string {
	suffix := fmt.Sprintf(".%016x", number)
	return subdomain(object, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// subdomain makes a name that can be part of an event's out of one that may not: Roles may be
// called "system:node", which no Event may.
func subdomain(name string, most int) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	name = strings.Trim(name[:min(len(name), most)], "-.")
	if validation.IsDNS1123Subdomain(name) != nil {
		return "object"
	}
	return name
}

// namespaceOf returns the namespace that the API server expects an event in.
func namespaceOf(regarding corev1.ObjectReference) string {
	if regarding.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return regarding.Namespace
}

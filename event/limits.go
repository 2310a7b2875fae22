package event

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Limits of the API server, in bytes.
const (
	maxShort = 128 // reason, action, reportingInstance
	maxNote  = 1024
)

// reference returns a reference to obj. It makes no request.
func (r *Recorder) reference(obj kube.Object) (corev1.ObjectReference, error) {
	if usercode.IsNil(obj) {
		return corev1.ObjectReference{}, errors.New("refer to an object in an event: the object is nil")
	}
	kind, err := r.config.Cluster.KindOf(obj)
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

// sanitize returns values that the API server accepts: it shortens long texts and fills in a missing reason or
// action, so that no event is lost because of them.
func sanitize(eventType, reason, action, note string) identity {
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
	return identity{eventType: eventType, reason: reason, action: action, note: cut(note, maxNote)}
}

// cut shortens s to at most limit bytes without splitting a character. It replaces invalid UTF-8 first, because
// the replacement is longer than the invalid byte.
func cut(s string, limit int) string {
	const replacement, ellipsis = "\uFFFD", "..."
	s = strings.ToValidUTF8(s, replacement)
	if len(s) <= limit {
		return s
	}
	end := limit - len(ellipsis)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// eventName returns a name for an event about an object. number is the event's time, so that the events of one
// object are adjacent and ordered in a list by name.
func eventName(object string, number uint64) string {
	suffix := fmt.Sprintf(".%016x", number)
	return toSubdomain(object, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// toSubdomain converts an object's name to a DNS subdomain of at most limit bytes, because some objects have names
// that Events cannot have, such as the Role "system:node".
func toSubdomain(name string, limit int) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	name = strings.Trim(name[:min(len(name), limit)], "-.")
	if validation.IsDNS1123Subdomain(name) != nil {
		return "object"
	}
	return name
}

// namespaceOf returns the namespace in which the API server requires the event.
func namespaceOf(regarding corev1.ObjectReference) string {
	if regarding.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return regarding.Namespace
}

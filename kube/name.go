package kube

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The lengths of names, in bytes.
const (
	// MaxLabelName is how long a name may be that is a DNS label: those of Services and
	// Namespaces. Values of labels may be as long, and so may be what becomes one: the names of
	// Jobs.
	MaxLabelName = 63
	// MaxControllerName is how long the names of CronJobs, StatefulSets and DaemonSets may be,
	// to which controllers append something that has to fit into a label.
	MaxControllerName = 52
	// MaxName is how long the names of most other kinds may be.
	MaxName = 253
)

// ChildName returns the name for a child of owner: "<owner's name>-<suffix>", when that is a DNS
// label, which nearly every kind takes as a name. For one that is too long, or has characters
// that no label has, it is cut or changed, and a hash is appended.
//
// It is the same at every call, in every version of this library. Children of different owners of
// a kind differ, also when their names begin with the same 63 characters, as long as no suffix
// has a "-": web with db-config, and web-db with config, meet. So do owners of two kinds that
// use the same suffix. Of an owner without a name it is "", which the API server refuses.
//
// A name that begins with a digit stays so; some kinds (Services, before 1.34) do not take it.
func ChildName(owner metav1.Object, suffix string) string {
	return ChildNameWithin(owner, suffix, MaxLabelName)
}

// ChildNameWithin is ChildName for another length: MaxControllerName or MaxName, usually. It is 20
// at least. Above MaxLabelName dots are kept, for such names are no labels.
func ChildNameWithin(owner metav1.Object, suffix string, most int) string {
	if owner.GetName() == "" {
		return ""
	}
	most = max(most, 20)
	wanted := owner.GetName()
	if suffix != "" {
		wanted += "-" + suffix
	}
	name := lettersOf(strings.ToLower(wanted), most > MaxLabelName)
	if name == wanted && len(name) <= most {
		return name
	}
	hash := hashOf(owner.GetName(), suffix)
	// The suffix says what it is, so it is kept if there is room for some of the owner too.
	tail := hash
	if kept := lettersOf(strings.ToLower(suffix), most > MaxLabelName); kept != "" && len(kept) <= most/2-len(hash) {
		tail = kept + "-" + hash
	}
	head := lettersOf(strings.ToLower(owner.GetName()), most > MaxLabelName)
	head = strings.TrimRight(head[:min(len(head), most-len(tail)-1)], "-.")
	if head == "" {
		return tail
	}
	return head + "-" + tail
}

// LabelValue returns value, when a label may have it, which "" may too. Otherwise it is changed
// and cut to 63 bytes, with a hash appended: different values stay different.
//
// Names of objects can be too long for a label, and a label that holds one is how children are
// found whose owner lives elsewhere.
func LabelValue(value string) string {
	isLetter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	mended := strings.Map(func(r rune) rune {
		if isLetter(r) || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, value)
	mended = strings.Trim(mended, "-_.")
	if mended == value && len(mended) <= MaxLabelName {
		return mended
	}
	hash := hashOf(value)
	mended = strings.TrimRight(mended[:min(len(mended), MaxLabelName-len(hash)-1)], "-_.")
	if mended == "" {
		return hash
	}
	return mended + "-" + hash
}

// lettersOf returns name with a "-" in place of what no DNS label has, and no "-" at its ends.
func lettersOf(name string, dots bool) string {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' && dots {
			return r
		}
		return '-'
	}, name)
	for _, bad := range []string{"..", ".-", "-."} { // which no name has
		if strings.Contains(letters, bad) {
			return lettersOf(name, false)
		}
	}
	return strings.Trim(letters, "-.")
}

// hashOf returns 10 letters and digits, 50 bits, that differ for different parts.
func hashOf(parts ...string) string {
	const length = 10
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:length])
}

package kube

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Maximum lengths of names, in bytes.
const (
	// MaxLabelName is the maximum length of a DNS label. It applies to names of Services and Namespaces, to label
	// values, and to names that become label values, such as those of Jobs.
	MaxLabelName = 63
	// MaxControllerName is the maximum length of names of CronJobs, StatefulSets and DaemonSets: controllers append a
	// suffix, and the result must be a valid label value.
	MaxControllerName = 52
	// MaxName is the maximum length of names of most other kinds.
	MaxName = 253
)

// ChildName returns the name for a child of owner: "<owner's name>-<suffix>" if that is a DNS label, which almost every
// kind accepts as a name. Otherwise it replaces invalid characters, shortens the name and appends a hash.
//
// The result never changes, also in later versions of this library. Names for different owners of a kind are different,
// also if their names begin with the same 63 characters, as long as no suffix contains a "-": web with db-config and
// web-db with config have the same name. Owners of two kinds with the same suffix have the same child name too. For an
// owner without a name it returns "", which the API server rejects.
//
// A name that begins with a digit is not changed. Some kinds (Services before 1.34) do not accept it.
func ChildName(owner metav1.Object, suffix string) string {
	return ChildNameWithin(owner, suffix, MaxLabelName)
}

// ChildNameWithin is like ChildName with another maximum length, usually MaxControllerName or MaxName. The minimum is
// 20. Above MaxLabelName it keeps dots, because such names need not be labels.
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
	// The suffix identifies the child, so it is kept if there is room for a part of the owner's name too.
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

// LabelValue returns value if it is a valid label value, which includes "". Otherwise it replaces invalid characters,
// shortens it to 63 bytes and appends a hash, so that different values remain different.
//
// Names of objects can be too long for a label value, and labels with the owner's name are needed to find children in
// another namespace than their owner's.
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

// lettersOf returns name with a "-" for each character that a DNS label cannot contain, and without "-" at its ends.
func lettersOf(name string, dots bool) string {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' && dots {
			return r
		}
		return '-'
	}, name)
	for _, bad := range []string{"..", ".-", "-."} { // invalid in names
		if strings.Contains(letters, bad) {
			return lettersOf(name, false)
		}
	}
	return strings.Trim(letters, "-.")
}

// hashOf returns 10 letters and digits (50 bits) that differ for different parts.
func hashOf(parts ...string) string {
	const length = 10
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:length])
}

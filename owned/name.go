package owned

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxLabel is the maximum length of a DNS label, in bytes.
const maxLabel = 63

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
	return ChildNameWithin(owner, suffix, maxLabel)
}

// ChildNameWithin is like ChildName with another maximum length in bytes, at least 20: 52 for CronJobs, StatefulSets
// and DaemonSets (their controllers append a suffix that must fit into a label value), and up to 253 for most other
// kinds. Above 63 it keeps dots, because such names need not be labels.
func ChildNameWithin(owner metav1.Object, suffix string, maxLength int) string {
	if owner.GetName() == "" {
		return ""
	}
	maxLength = max(maxLength, 20)
	wanted := owner.GetName()
	if suffix != "" {
		wanted += "-" + suffix
	}
	name := lettersOf(strings.ToLower(wanted), maxLength > maxLabel)
	if name == wanted && len(name) <= maxLength {
		return name
	}
	hash := hashOf(owner.GetName(), suffix)
	// The suffix identifies the child, so it is kept if there is room for a part of the owner's name too.
	tail := hash
	if kept := lettersOf(strings.ToLower(suffix), maxLength > maxLabel); kept != "" && len(kept) <= maxLength/2-len(hash) {
		tail = kept + "-" + hash
	}
	head := lettersOf(strings.ToLower(owner.GetName()), maxLength > maxLabel)
	head = strings.TrimRight(head[:min(len(head), maxLength-len(tail)-1)], "-.")
	if head == "" {
		return tail
	}
	return head + "-" + tail
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

package owned

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxChildName is the maximum length of a child's name, in bytes: see ChildName.
const maxChildName = 52

// ChildName returns the name for a child of owner: "<owner's name>-<suffix>" if that is a DNS label of at most 52
// bytes, which almost every kind accepts as a name, and if no other owner and suffix have the same. Otherwise it
// replaces invalid characters, shortens the name and appends a hash: also for a suffix with a "-" (web with db-config
// and web-db with config), and without a suffix for an owner with a "-" (web-db, and web with db).
//
// 52 bytes is the smallest limit of the built-in kinds. The names of CronJobs have it, because the names of their Jobs
// have 11 more characters (ValidateCronJobCreate in k8s.io/kubernetes/pkg/apis/batch/validation). StatefulSets need it,
// because the value of their Pods' label controller-revision-hash is the name and 11 more characters, and label values
// have at most 63. Services, and Jobs that create Pods, have 63.
//
// The result never changes, also in later versions of this library. Names for different owners of a kind are different,
// also if their names begin with the same 52 characters. Owners of two kinds with the same suffix have the same child
// name. For an owner without a name it returns "", which the API server rejects.
//
// A name that begins with a digit is not changed. Some kinds (Services before 1.34) do not accept it.
func ChildName(owner metav1.Object, suffix string) string {
	if owner.GetName() == "" {
		return ""
	}
	wanted, last := owner.GetName(), owner.GetName() // last must not contain a "-"
	if suffix != "" {
		wanted, last = wanted+"-"+suffix, suffix
	}
	if len(wanted) <= maxChildName && lettersOf(wanted) == wanted && !strings.Contains(last, "-") {
		return wanted
	}
	hash := hashOf(owner.GetName(), suffix)
	// The suffix identifies the child, so it is kept if there is room for a part of the owner's name too.
	tail := hash
	if kept := lettersOf(suffix); kept != "" && len(kept) <= maxChildName/2-len(hash) {
		tail = kept + "-" + hash
	}
	head := lettersOf(owner.GetName())
	head = strings.TrimRight(head[:min(len(head), maxChildName-len(tail)-1)], "-")
	if head == "" {
		return tail
	}
	return head + "-" + tail
}

// lettersOf returns name in lower case with a "-" for each character that a DNS label cannot contain, and without "-"
// at its ends.
func lettersOf(name string) string {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return strings.Trim(letters, "-")
}

// hashOf returns 10 letters and digits (50 bits) that differ for different parts.
func hashOf(parts ...string) string {
	const length = 10
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:length])
}

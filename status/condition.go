package status

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API server takes, by the schema of metav1.Condition.
const (
	maxReason  = 1024
	maxMessage = 32768
)

// unknownReason stands for a reason that was not given: the API demands one.
const unknownReason = "Unknown"

// True returns a condition that holds. generation is the object's generation that this was found
// out about: obj.GetGeneration() of what the handler has in hand.
func True(conditionType string, generation int64, reason, message string) metav1.Condition {
	return condition(conditionType, metav1.ConditionTrue, generation, reason, message)
}

// False returns a condition that does not hold.
func False(conditionType string, generation int64, reason, message string) metav1.Condition {
	return condition(conditionType, metav1.ConditionFalse, generation, reason, message)
}

// Unknown returns a condition of which nobody can tell whether it holds.
func Unknown(conditionType string, generation int64, reason, message string) metav1.Condition {
	return condition(conditionType, metav1.ConditionUnknown, generation, reason, message)
}

func condition(conditionType string, status metav1.ConditionStatus, generation int64, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, ObservedGeneration: generation, Reason: reason, Message: message}
}

// Set puts c into conditions, in the place of the one of its type, or else at the end, and
// reports whether that changed anything. Types, positions and contents of the others stay.
//
// LastTransitionTime is when Status last changed: while it does not, the time that is there
// stays, whatever c says; when it does, or c is new, it is c's, and now if c has none.
// ObservedGeneration is taken as c has it.
//
// What the API server would refuse is mended where it can be: an empty Status is Unknown; an
// empty Reason is "Unknown", and one with other characters than a reason may have is written in
// CamelCase ("no such bucket" is NoSuchBucket); what is too long is cut. A Type cannot be mended,
// because it says which condition is meant: Commit refuses an empty one, and the API server
// what else is wrong with it.
func Set(conditions *[]metav1.Condition, c metav1.Condition) (changed bool) {
	c = mended(c)
	i := slices.IndexFunc(*conditions, func(old metav1.Condition) bool { return old.Type == c.Type })
	if i < 0 {
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now()
		}
		*conditions = append(*conditions, c)
		return true
	}
	old := (*conditions)[i]
	switch {
	case old.Status == c.Status && !old.LastTransitionTime.IsZero():
		c.LastTransitionTime = old.LastTransitionTime
	case c.LastTransitionTime.IsZero():
		c.LastTransitionTime = now()
	}
	(*conditions)[i] = c
	return old != c
}

// now is the time in the precision that the API has.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }

// Get returns the condition of a type, and whether there is one.
func Get(conditions []metav1.Condition, conditionType string) (metav1.Condition, bool) {
	for _, c := range conditions {
		if c.Type == conditionType {
			return c, true
		}
	}
	return metav1.Condition{}, false
}

// Remove removes the conditions of these types, and reports whether there was one. The others
// keep their order.
func Remove(conditions *[]metav1.Condition, conditionTypes ...string) (changed bool) {
	before := len(*conditions)
	*conditions = slices.DeleteFunc(*conditions, func(c metav1.Condition) bool { return slices.Contains(conditionTypes, c.Type) })
	return len(*conditions) != before
}

// IsTrue reports whether there is a condition of the type, with status True.
func IsTrue(conditions []metav1.Condition, conditionType string) bool {
	c, _ := Get(conditions, conditionType)
	return c.Status == metav1.ConditionTrue
}

// IsFalse reports whether there is a condition of the type, with status False. One that is
// missing is neither true nor false.
func IsFalse(conditions []metav1.Condition, conditionType string) bool {
	c, _ := Get(conditions, conditionType)
	return c.Status == metav1.ConditionFalse
}

// mended returns c as the API server takes it.
func mended(c metav1.Condition) metav1.Condition {
	if c.Status == "" {
		c.Status = metav1.ConditionUnknown
	}
	c.Reason = mendedReason(c.Reason)
	c.Message = cut(strings.ToValidUTF8(c.Message, "\uFFFD"), maxMessage)
	c.ObservedGeneration = max(c.ObservedGeneration, 0)
	return c
}

// mendedReason returns reason as it has to be: a letter, then letters, digits, "_", "," and ":", of
// which the last two are not the end.
func mendedReason(reason string) string {
	words := strings.FieldsFunc(reason, func(r rune) bool { return !letter(r) && !strings.ContainsRune("0123456789_,:", r) })
	if len(words) > 1 || len(words) == 1 && words[0] != reason {
		for i, word := range words {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	mended := strings.TrimLeftFunc(strings.Join(words, ""), func(r rune) bool { return !letter(r) })
	mended = strings.TrimRight(mended[:min(len(mended), maxReason)], ",:")
	return cmp.Or(mended, unknownReason)
}

func letter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// cut shortens text to at most limit bytes, and says so in it.
func cut(text string, limit int) string {
	const more = "..."
	if len(text) <= limit {
		return text
	}
	text = text[:limit-len(more)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1] // the limit was in a character
	}
	return text + more
}

package status

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of the API server, from the schema of metav1.Condition.
const (
	maxReason  = 1024
	maxMessage = 32768
)

// unknownReason replaces an empty reason, which the API server rejects.
const unknownReason = "Unknown"

// True returns a condition with status True. generation is the generation of the object that was observed:
// obj.GetGeneration() of the handler's copy.
func True(conditionType string, generation int64, reason, message string) metav1.Condition {
	return newCondition(conditionType, metav1.ConditionTrue, generation, reason, message)
}

// False returns a condition with status False.
func False(conditionType string, generation int64, reason, message string) metav1.Condition {
	return newCondition(conditionType, metav1.ConditionFalse, generation, reason, message)
}

func newCondition(
	conditionType string, status metav1.ConditionStatus, generation int64, reason, message string,
) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: status, ObservedGeneration: generation, Reason: reason,
		Message: message,
	}
}

// Set sets c in conditions: it replaces the condition of the same type, or appends c. It reports whether conditions
// changed. Other conditions keep their order and content.
//
// LastTransitionTime is the time of the last change of Status. If the status does not change, the existing time
// stays. Otherwise it is the time of c, or now if c has none. ObservedGeneration is that of c.
//
// Set corrects fields that the API server would reject: an empty Status becomes Unknown, an empty Reason "Unknown",
// invalid characters of a Reason are removed ("no such bucket" becomes NoSuchBucket), and long texts are shortened.
// It cannot correct Type: Commit leaves out a condition with an invalid one, writes the rest, and returns an error.
func Set(conditions *[]metav1.Condition, c metav1.Condition) (changed bool) {
	c = corrected(c)
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

// now returns the time with the precision of the API.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }

// corrected returns c with valid fields.
func corrected(c metav1.Condition) metav1.Condition {
	if c.Status == "" {
		c.Status = metav1.ConditionUnknown
	}
	c.Reason = correctedReason(c.Reason)
	c.Message = cut(strings.ToValidUTF8(c.Message, "\uFFFD"), maxMessage)
	c.ObservedGeneration = max(c.ObservedGeneration, 0)
	return c
}

// correctedReason returns a valid reason: a letter, then letters, digits, "_", "," and ":", not ending with "," or
// ":".
func correctedReason(reason string) string {
	words := strings.FieldsFunc(reason, func(r rune) bool {
		return !isLetter(r) && !strings.ContainsRune("0123456789_,:", r)
	})
	if len(words) > 1 || len(words) == 1 && words[0] != reason {
		for i, word := range words {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	valid := strings.TrimLeftFunc(strings.Join(words, ""), func(r rune) bool { return !isLetter(r) })
	valid = strings.TrimRight(valid[:min(len(valid), maxReason)], ",:")
	return cmp.Or(valid, unknownReason)
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// cut shortens text to at most limit bytes. A shortened text ends with "...".
func cut(text string, limit int) string {
	const ellipsis = "..."
	if len(text) <= limit {
		return text
	}
	text = text[:limit-len(ellipsis)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1] // the limit was inside a character
	}
	return text + ellipsis
}

package conformance

// mask is an accepted difference between the servers.
type mask struct{ name, reason string }

const (
	maskManagedFields       = "managedFields"
	maskManagedVersion      = "version of managed fields"
	maskListVersion         = "list version"
	maskStaleWarnings       = "stale warnings"
	maskApply               = "apply patches"
	maskNamespaceFinalizers = "finalizers of namespaces"
	maskPatchedObject       = "object in message"
)

// masks returns all accepted differences.
func masks() []mask {
	return []mask{
		{maskManagedFields, "internal/apiserver has no managed fields yet: metadata.managedFields is removed from the real server's objects"},
		{maskManagedVersion, "a write that changes nothing but managed fields gets a version and an event in the real server: the version has the symbol of the one before, and the event is removed"},
		{maskListVersion, "other clients write to the real server all the time: the version of a list, which is at least the latest version that was sent, is one symbol"},
		{maskApply, "internal/apiserver has no server-side apply yet: its media type is removed from the real server's list of accepted ones"},
		{maskStaleWarnings, "the real server first tries a write on the object in its cache, which may be stale: the warnings of that attempt are removed from responses 404 and 409"},
		{maskNamespaceFinalizers, "the real server reorders the finalizers of a deleted namespace at random: they are sorted"},
		{maskPatchedObject, "the message about a patch that makes an object invalid contains the whole object, with its managed fields: that object is removed"},
	}
}

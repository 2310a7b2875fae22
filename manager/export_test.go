package manager

// SetFiles sets the files that Options sets.
func (c *Config) SetFiles(certFile, keyFile string) { c.certFile, c.keyFile = certFile, keyFile }

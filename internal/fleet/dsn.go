package fleet

import (
	"net/url"
	"strings"
)

// withDatabase names another database of the same server.
func withDatabase(dsn, database string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Path = "/" + database
	return u.String(), nil
}

// withStandby adds the standby's address: whichever of the two takes writes is the one that is connected to.
func withStandby(dsn, standby string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	other, err := url.Parse(standby)
	if err != nil {
		return "", err
	}
	u.Host += "," + other.Host
	return u.String(), nil
}

func databaseOf(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}

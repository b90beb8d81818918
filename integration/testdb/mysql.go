package main

import (
	"context"
	"fmt"
	"path/filepath"
)

// prepareMySQL makes a data folder, and the file of statements that gives the server its password at its first start,
// before it takes a connection.
func prepareMySQL(ctx context.Context, k *kind, b *binary, h *home, password string) ([]string, error) {
	data := "--datadir=" + h.dir + "/data"
	if k.name == "mysql" {
		// Nothing of this has to be on disk if the power fails.
		if err := h.run(ctx, b.path, "--no-defaults", "--initialize-insecure", data,
			"--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--secure-file-priv=NULL"); err != nil {
			return nil, err
		}
	} else {
		install, err := b.tool("mariadb-install-db", "mysql_install_db")
		if err != nil {
			return nil, err
		}
		if err := h.run(ctx, install, "--no-defaults", data, "--basedir="+filepath.Dir(b.dir),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"); err != nil {
			return nil, err
		}
	}
	// One statement per line, as MySQL wants them in this file.
	secret, err := h.write(secretFile, fmt.Sprintf(""+
		"CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '%[1]s';\n"+
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"+
		"ALTER USER 'root'@'127.0.0.1' IDENTIFIED BY '%[1]s';\n"+
		"ALTER USER 'root'@'localhost' IDENTIFIED BY '%[1]s';\n"+
		"CREATE DATABASE IF NOT EXISTS test;\n", password))
	return []string{"--init-file=" + secret}, err
}

// mysqlArguments keeps the server off the standard ports, X Protocol's too, and off the standard socket.
func mysqlArguments(k *kind, h *home, port string) []string {
	arguments := []string{
		"--no-defaults",
		"--datadir=" + h.dir + "/data",
		"--port=" + port,
		"--bind-address=127.0.0.1",
		"--socket=" + h.dir + "/sock",
		"--pid-file=" + h.dir + "/pid",
		"--max-connections=300", maxErrors,
	}
	if k.name == "mysql" {
		arguments = append(arguments, "--mysqlx=OFF", "--secure-file-priv=NULL")
	}
	return arguments
}

// maxErrors: tests cancel contexts at any moment, also in the middle of a
// handshake, and a host with 100 of those in a row is blocked by default.
const maxErrors = "--max-connect-errors=1000000"
